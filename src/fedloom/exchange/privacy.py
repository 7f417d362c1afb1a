"""What an exchange of averages gives away, as (epsilon, delta): neighbours differ in one sample of one client, replaced by another.

A sample of norm C at most moves an average of M by 2C/M at most, its label by sqrt(2)/M. Noise of deviation s on a value that
moves by d is a Gaussian release of strength d/s. The groups are disjoint, so that a sample is in one of them; its average and
its label are released together, and strengths add up as squares: over the two, and over exchanges that were made again.

    strength = sqrt(releases) * hypot(2 C / (M noise), sqrt(2) / (M label_noise)),      epsilon from it by dp-accounting (PLD)

M is the smallest group of all clients: a small tail, or a small client, decides. What the server averages once more counts for
nothing, since it has seen the parts. Groups of one class depend on the labels, which are therefore public. The noise is drawn
from the run's seed, as in any simulation: the guarantee is one against those who do not know the seed.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, replace

from fedloom.core.errors import UserError

STRONGEST = 100.0  # at delta 1e-5 an epsilon of 5,000: nothing that anybody would call a guarantee
WEAKEST = 1e-4  # 0.0002
HALVINGS = 16


@dataclass(frozen=True)
class Release:
    """Averages as they leave a client. smallest: samples in the smallest of them. public: whether labels are known anyway."""

    smallest: int
    clip: float | None = None
    noise: float = 0.0
    label_noise: float = 0.0
    public: bool = False
    releases: int = 1

    @property
    def samples(self) -> float:
        """The strength of what is said of the samples; infinite without a bound or without noise."""
        bounded = self.clip is not None and self.noise > 0
        return (
            math.sqrt(self.releases) * 2 * self.clip / (self.smallest * self.noise)
            if bounded and self.clip
            else math.inf
        )

    @property
    def labels(self) -> float:
        """The strength of what is said of their labels."""
        hidden = self.label_noise > 0 and not self.public
        return (
            math.sqrt(2 * self.releases) / (self.smallest * self.label_noise)
            if hidden
            else math.inf
        )

    @property
    def strength(self) -> float:
        return math.hypot(self.samples, self.labels)

    def weaker(self, factor: float) -> Release:
        """With so much more noise."""
        return replace(self, noise=self.noise * factor, label_noise=self.label_noise * factor)


def epsilon(strength: float, delta: float) -> float:
    """Of one Gaussian release, rounded up; infinite where it has no meaning.

    Two releases at once are one of their joint strength, so that nothing has to be composed.
    """
    if strength > STRONGEST:
        return math.inf
    try:
        accounting = importlib.import_module("dp_accounting")
        pld = importlib.import_module("dp_accounting.pld")
    except ImportError as error:
        raise UserError(
            'the (epsilon, delta) of an exchange needs dp-accounting; pip install "fedloom[privacy]"'
        ) from error
    accountant = pld.PLDAccountant(value_discretization_interval=strength / 1000)
    return float(accountant.compose(accounting.GaussianDpEvent(1 / strength)).get_epsilon(delta))


def sentence(release: Release, delta: float) -> str:
    """What is guaranteed, before anything is sent."""
    of = "a single sample" if release.smallest == 1 else f"{release.smallest} samples"
    times = "" if release.releases == 1 else f" {release.releases} times, which adds up"
    sent = f"clients send averages of their data{times}, the smallest of {of}"
    if math.isinf(release.samples):
        return f"{sent}; {_nothing(release)}; what averages of images show is measured by: fedloom analyze RUN --only leak"
    samples = _figure(release.samples, delta)
    if math.isinf(release.labels):
        why = "depend on the split by class" if release.public else "are sent without noise"
        remedy = "take split=random and label_noise" if release.public else "set label_noise"
        alone = f"for the samples alone (epsilon, delta) = ({samples}, {delta:g})"
        return (
            f"{sent}; {alone}, but their labels {why}, so for both there is no guarantee: {remedy}"
        )
    both = f"(epsilon, delta) = ({_figure(release.strength, delta)}, {delta:g})"
    return f"{sent}, with {both} against whoever does not know the seed, and {samples} for the samples without their labels"


def _nothing(release: Release) -> str:
    if release.noise:
        return "noise guarantees nothing as long as a sample's norm has no bound: set clip"
    return "averaging alone guarantees nothing: set clip, noise and label_noise"


def _figure(strength: float, delta: float) -> str:
    found = epsilon(strength, delta)
    return "above 5000" if math.isinf(found) else _up(found, 4)


def _up(value: float, digits: int) -> str:
    """Rounded up, as a bound is.

    >>> _up(1.99309, 4), _up(0.6112, 3)
    ('1.994', '0.612')
    """
    if value <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return f"{math.ceil(value / step) * step:.{digits}g}"


def check(release: Release, limit: float, delta: float) -> None:
    """Refuse an exchange that gives away more than the limit, and say what would keep it."""
    given = f"epsilon={limit:g} at delta={delta:g}"
    if math.isinf(release.strength):
        needs = [
            "clip" if release.clip is None else "",
            "noise" if not release.noise else "",
            "split=random" if release.public else "",
            "label_noise" if not release.label_noise else "",
        ]
        raise UserError(
            f"{given} cannot be kept: averages and labels have no guarantee without {' and '.join(filter(None, needs))}"
        )
    if epsilon(release.strength, delta) > limit:
        enough = release.weaker(release.strength / strongest(limit, delta))
        remedy = f"noise to {_up(enough.noise, 3)} and label_noise to {_up(enough.label_noise, 3)}, or size (with tail=drop)"
        found = f"epsilon {_figure(release.strength, delta)}, its smallest average being one of {release.smallest}"
        raise UserError(f"{given} is not kept: the exchange has {found}; raise {remedy}")


def strongest(limit: float, delta: float) -> float:
    """The strength that the limit allows, or a little less."""
    low, high = WEAKEST, STRONGEST
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon(middle, delta) <= limit else (low, middle)
    return low
