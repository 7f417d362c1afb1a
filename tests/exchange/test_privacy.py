"""The (epsilon, delta) of an exchange.

Against published numbers, a closed form, and dp-accounting's own composition.
"""

import math
import sys

import pytest

from fedloom.core.errors import UserError
from fedloom.core.exchange_before_run import notices
from fedloom.core.federation import Federation
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.exchange.averaged_data_exchange import averaged_data_exchange
from fedloom.exchange.privacy import Release, check_budget, describe_guarantee, epsilon, max_mu
from support.clients import tiny_clients
from support.models import nested
from support.simulate import SOLVER

accounting = pytest.importorskip("dp_accounting", reason="needs fedloom[privacy]")
DELTA = 1e-5
SIZES = (30, 57, 44)


def analytic(mu: float, delta: float) -> float:
    """The exact epsilon of a Gaussian mechanism, by bisection.

    delta = P(mu/2 - e/mu) - exp(e) P(-mu/2 - e/mu)
    """

    def excess(e: float) -> float:
        below = [0.5 * math.erfc(-t / math.sqrt(2)) for t in (mu / 2 - e / mu, -mu / 2 - e / mu)]
        return below[0] - math.exp(e) * below[1] - delta

    low, high = 0.0, 500.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


@pytest.mark.parametrize(("z", "expected"), [(0.5, 10.0), (1, 4.38), (2, 1.99), (4, 0.93)])
def test_one_release_has_the_published_epsilon(z: float, expected: float) -> None:
    assert round(epsilon(1 / z, DELTA), 2) == expected
    # The standard deviation is z times the sensitivity 2C/M.
    release = Release(smallest=50, clip=28.0, noise=z * 2 * 28 / 50)
    assert round(epsilon(release.sample_mu, DELTA), 2) == expected


@pytest.mark.parametrize("mu", [0.02, 0.3, 1.0, 4.0, 15.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_epsilon_equals_the_closed_form_and_is_never_below_it(mu: float, delta: float) -> None:
    exact, found = analytic(mu, delta), epsilon(mu, delta)
    assert exact - 1e-9 <= found <= exact * 1.0001 + 1e-9


@pytest.mark.parametrize(
    ("limit", "z", "deviations"),
    [
        (1, 3.73, (41.8, 20.9, 4.2, 0.42)),
        (8, 0.60, (6.7, 3.4, 0.67, 0.07)),
        (30, 0.21, (2.4, 1.2, 0.24, 0.02)),
    ],
)
def test_the_noise_needed_for_a_limit_is_the_published_one(
    limit: float, z: float, deviations: tuple[float, ...]
) -> None:
    """Pixels of norm 28, averages of 5, 10, 50 and 500."""
    allowed = max_mu(limit, DELTA)
    assert epsilon(allowed, DELTA) <= limit <= epsilon(allowed * 1.001, DELTA)
    assert 1 / allowed == pytest.approx(z, abs=0.0051)
    for size, deviation in zip((5, 10, 50, 500), deviations, strict=True):
        needed = Release(size, 28.0, 1.0).sample_mu / allowed
        digits = len(str(deviation).partition(".")[2])
        assert needed == pytest.approx(deviation, abs=0.51 * 10**-digits)


def test_labels_and_samples_compose() -> None:
    release = Release(smallest=20, clip=5.0, noise=0.4, label_noise=0.05)
    assert release.sample_mu == pytest.approx(
        2 * 5 / 20 / 0.4
    ) and release.label_mu == pytest.approx(math.sqrt(2) / 20 / 0.05)
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    for mu in (release.sample_mu, release.label_mu):
        accountant.compose(accounting.GaussianDpEvent(1 / mu))
    both = epsilon(release.mu, DELTA)
    assert both == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert both > max(epsilon(release.sample_mu, DELTA), epsilon(release.label_mu, DELTA))
    assert math.isinf(Release(20, 5.0, 0.4).mu)


def test_repeated_exchanges_compose() -> None:
    once, thrice = (Release(20, 5.0, 0.4, 0.05, releases=n) for n in (1, 3))
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(accounting.GaussianDpEvent(1 / once.mu), 3)
    assert epsilon(thrice.mu, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)


@pytest.mark.parametrize(
    ("release", "said"),
    [
        (
            Release(5),
            "the smallest is an average of 5 samples. Averaging alone gives no privacy guarantee: "
            "set clip, noise and label_noise.",
        ),
        (
            Release(1),
            "the smallest is an average of a single sample. Averaging alone gives no privacy",
        ),
        (
            Release(5, noise=0.3),
            "Noise gives no privacy guarantee unless the norm of a sample is bounded: set clip.",
        ),
        (Release(5, clip=3.0), "Averaging alone gives no privacy guarantee"),
        (
            Release(50, 28.0, 1.12),
            "(4.378, 1e-05), but the labels are sent without noise, "
            "so there is no guarantee for both together",
        ),
        (
            Release(50, 28.0, 1.12, 0.1, public_labels=True),
            "but groups of one class reveal the labels, so there is no guarantee for both together",
        ),
        (
            Release(50, 28.0, 1.12, 1.0),
            "the seed; for the samples without their labels epsilon is 4.378",
        ),
        (
            Release(5, 28.0, 0.01, 1.0),
            "(epsilon, delta) = (above 5000, 1e-05) against anyone who does not know the seed",
        ),
    ],
)
def test_the_guarantee_is_described(release: Release, said: str) -> None:
    assert said in describe_guarantee(release, DELTA)


def test_the_joint_epsilon_is_stated_first() -> None:
    release = Release(50, 28.0, 1.12, math.sqrt(2) / 50)  # both have mu 1
    figure = math.ceil(analytic(math.sqrt(2), DELTA) * 1000) / 1000
    assert f"(epsilon, delta) = ({figure}, 1e-05) against" in describe_guarantee(release, DELTA)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "clip and noise and label_noise"),
        ({"clip": 3.0, "noise": 1.0}, "label_noise"),
        ({"noise": 1.0, "label_noise": 1.0}, "clip"),
        ({"clip": 3.0, "noise": 1.0, "label_noise": 1.0, "split": "same-class"}, "split=random"),
    ],
)
def test_a_limit_without_any_guarantee_is_rejected(given: dict[str, float], missing: str) -> None:
    with pytest.raises(
        UserError,
        match=f"epsilon=8 at delta=1e-05 cannot be met: without {missing} there .*; set {missing}$",
    ):
        averaged_data_exchange(size=10, epsilon=8.0, **given).notice(SIZES, 1)


def test_an_exceeded_limit_is_rejected_with_the_noise_that_meets_it() -> None:
    release = Release(10, 3.0, 0.5, 0.1)
    with pytest.raises(UserError) as refused:
        check_budget(release, 4.0, DELTA)
    words = str(refused.value).split()
    noise, labels = (
        float(words[words.index(name) + 2].rstrip(",")) for name in ("noise", "label_noise")
    )
    check_budget(Release(10, 3.0, noise, labels), 4.0, DELTA)
    with pytest.raises(
        UserError, match=r"epsilon=4 at delta=1e-05 is exceeded: the exchange has epsilon 4\.0"
    ):
        check_budget(Release(10, 3.0, noise * 0.99, labels * 0.99), 4.0, DELTA)


def test_the_smallest_group_of_any_client_decides() -> None:
    private = {"clip": 3.0, "noise": 1.0, "label_noise": 1.0}
    assert "smallest is an average of 2 samples" in averaged_data_exchange(
        size=5, **private
    ).notice((30, 57, 45), 1)
    assert "smallest is an average of 5 samples" in averaged_data_exchange(
        size=5, tail="drop", **private
    ).notice((30, 57, 45, 3), 1)
    assert "smallest is an average of 30 samples" in averaged_data_exchange(**private).notice(
        (30, 57, 45), 1
    )
    assert "smallest is an average of 45 samples" in averaged_data_exchange(
        least=31, **private
    ).notice((30, 57, 45), 1)
    assert "a single sample" in averaged_data_exchange(size=5, split="same-class").notice(
        (30, 57, 45), 1
    )
    for given in ({"least": 58}, {"size": 58, "tail": "drop"}):
        with pytest.raises(
            UserError, match="no client has an average to send: the largest has 57 samples"
        ):
            averaged_data_exchange(**given).notice((30, 57, 45), 1)


def test_the_user_is_informed_before_anything_is_sent() -> None:
    def federation(**given: float) -> Federation:
        return Federation(
            Method("m", prologue=(averaged_data_exchange(**given),)),
            nested,
            tiny_clients(),
            SOLVER,
            Key.root(0),
        )

    (said,) = notices(federation(size=4), 3)
    assert said.startswith(
        "exchange 'mashed': clients send averages of their data; "
        "the smallest is an average of a single sample. Averaging"
    )
    with pytest.raises(UserError, match="is exceeded"):
        notices(federation(clip=1.0, noise=0.01, label_noise=0.01, epsilon=1.0), 3)
    assert notices(Federation(Method("m"), nested, tiny_clients(), SOLVER, Key.root(0)), 3) == []


def test_a_missing_dp_accounting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UserError, match=r"needs dp-accounting; pip install \"fedloom\[privacy\]\""):
        epsilon(1.0, DELTA)
    assert "Averaging alone" in describe_guarantee(Release(5), DELTA)
