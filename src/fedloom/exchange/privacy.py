"""The differential privacy of an exchange of averaged data, as (epsilon, delta).

The guarantee hides any single sample: neighbouring data sets differ in one sample of one client,
which is replaced by another. Whatever an observer looks for in what the clients send, it is at most
exp(epsilon) times as likely with one data set as with a neighbouring one, plus delta.

Replacing a sample of norm at most C in an average of M samples moves the average by at most 2C/M
and its label by at most sqrt(2)/M. Gaussian noise of standard deviation s on a value of sensitivity
d is a Gaussian mechanism with mu = d/s (mu-GDP). Groups are disjoint, so a sample is in only one of
them. The average and its label are released together, and the squares of their mu add up, as they
do over repeated exchanges:

    mu = sqrt(releases) * hypot(2 C / (M noise), sqrt(2) / (M label_noise))

epsilon follows from mu by dp-accounting's privacy loss distribution (PLD).

M is the size of the smallest group of any client: one small tail group or one small client decides.
Further averaging by the server does not help, since the server has seen the parts. Groups of a
single class depend on the labels, so the labels are then public. The noise derives from the run's
seed, as in any simulation: the guarantee holds against those who do not know the seed.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, replace

from fedloom.core.errors import UserError

MAX_MU = 100.0  # epsilon 5,000 at delta 1e-5: too weak to be called a guarantee
MIN_MU = 1e-4  # epsilon 0.0002
BISECTIONS = 16


@dataclass(frozen=True)
class Release:
    """Averages as they leave the clients.

    smallest        samples in the smallest average.
    clip            bound on the norm of a sample; None is no bound.
    noise           standard deviation of the noise on an average, label_noise that on its label.
    public_labels   whether the labels are revealed anyway.
    releases        how many times averages are sent.
    """

    smallest: int
    clip: float | None = None
    noise: float = 0.0
    label_noise: float = 0.0
    public_labels: bool = False
    releases: int = 1

    @property
    def sample_mu(self) -> float:
        """mu of the averaged samples; infinite without a clip or without noise."""
        if not self.clip or self.noise <= 0:
            return math.inf
        return math.sqrt(self.releases) * 2 * self.clip / (self.smallest * self.noise)

    @property
    def label_mu(self) -> float:
        """mu of the averaged labels; infinite if they are public or without noise."""
        if self.public_labels or self.label_noise <= 0:
            return math.inf
        return math.sqrt(2 * self.releases) / (self.smallest * self.label_noise)

    @property
    def mu(self) -> float:
        """mu of samples and labels together."""
        return math.hypot(self.sample_mu, self.label_mu)

    def with_noise_times(self, factor: float) -> Release:
        """The same release with both kinds of noise multiplied by the factor."""
        return replace(self, noise=self.noise * factor, label_noise=self.label_noise * factor)


def epsilon(mu: float, delta: float) -> float:
    """epsilon of one Gaussian mechanism, rounded up; infinite above MAX_MU.

    Several mechanisms together are one with their joint mu, so nothing needs to be composed.
    """
    if mu > MAX_MU:
        return math.inf
    try:
        accounting = importlib.import_module("dp_accounting")
        pld = importlib.import_module("dp_accounting.pld")
    except ImportError as error:
        raise UserError(
            "the (epsilon, delta) of an exchange needs dp-accounting; "
            'pip install "fedloom[privacy]"'
        ) from error
    accountant = pld.PLDAccountant(value_discretization_interval=mu / 1000)
    return float(accountant.compose(accounting.GaussianDpEvent(1 / mu)).get_epsilon(delta))


def describe_guarantee(release: Release, delta: float) -> str:
    """What clients send and what is guaranteed, shown to the user before anything is sent."""
    size = "a single sample" if release.smallest == 1 else f"{release.smallest} samples"
    times = "" if release.releases == 1 else f" {release.releases} times (the privacy loss adds up)"
    sent = f"clients send averages of their data{times}; the smallest is an average of {size}"
    if math.isinf(release.sample_mu):
        return (
            f"{sent}. {_why_no_guarantee(release)} "
            "To measure what averages of images reveal, use: fedloom analyze RUN --only leak"
        )
    samples = _figure(release.sample_mu, delta)
    if math.isinf(release.label_mu):
        return (
            f"{sent}. For the samples alone (epsilon, delta) = ({samples}, {delta:g}), "
            f"but {_why_no_label_guarantee(release)}"
        )
    both = _figure(release.mu, delta)
    return (
        f"{sent}. (epsilon, delta) = ({both}, {delta:g}) against anyone who does not know the "
        f"seed; for the samples without their labels epsilon is {samples}"
    )


def _why_no_guarantee(release: Release) -> str:
    if release.noise:
        return "Noise gives no privacy guarantee unless the norm of a sample is bounded: set clip."
    return "Averaging alone gives no privacy guarantee: set clip, noise and label_noise."


def _why_no_label_guarantee(release: Release) -> str:
    if release.public_labels:
        cause, remedy = "groups of one class reveal the labels", "set split=random and label_noise"
    else:
        cause, remedy = "the labels are sent without noise", "set label_noise"
    return f"{cause}, so there is no guarantee for both together: {remedy}"


def _figure(mu: float, delta: float) -> str:
    value = epsilon(mu, delta)
    return "above 5000" if math.isinf(value) else _rounded_up(value, 4)


def _rounded_up(value: float, digits: int) -> str:
    """A bound, rounded up to this many significant digits.

    >>> _rounded_up(1.99309, 4), _rounded_up(0.6112, 3)
    ('1.994', '0.612')
    """
    if value <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return f"{math.ceil(value / step) * step:.{digits}g}"


def check_budget(release: Release, limit: float, delta: float) -> None:
    """Raise if the release exceeds the limit on epsilon, naming the noise that would meet it."""
    budget = f"epsilon={limit:g} at delta={delta:g}"
    if math.isinf(release.mu):
        missing = " and ".join(_missing_settings(release))
        raise UserError(
            f"{budget} cannot be met: without {missing} there is no guarantee for averages "
            f"and labels; set {missing}"
        )
    if epsilon(release.mu, delta) > limit:
        enough = release.with_noise_times(release.mu / max_mu(limit, delta))
        noise, label_noise = _rounded_up(enough.noise, 3), _rounded_up(enough.label_noise, 3)
        raise UserError(
            f"{budget} is exceeded: the exchange has epsilon {_figure(release.mu, delta)}, and its "
            f"smallest average is of {release.smallest}; raise noise to {noise} and label_noise to "
            f"{label_noise}, or raise size (with tail=drop)"
        )


def _missing_settings(release: Release) -> list[str]:
    """The settings without which there is no guarantee."""
    missing = {
        "clip": release.clip is None,
        "noise": not release.noise,
        "split=random": release.public_labels,
        "label_noise": not release.label_noise,
    }
    return [setting for setting, absent in missing.items() if absent]


def max_mu(limit: float, delta: float) -> float:
    """The largest mu whose epsilon is within the limit, or slightly less (by bisection)."""
    low, high = MIN_MU, MAX_MU
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon(middle, delta) <= limit else (low, middle)
    return low
