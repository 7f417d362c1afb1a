"""The (epsilon, delta) of an exchange, against published numbers, a closed form, and the accountant's own composition."""

import math
import sys

import pytest

from fedloom.core.client import Federation
from fedloom.core.errors import UserError
from fedloom.core.exchange import notices
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.exchange.averaged_data import averaged_data_exchange
from fedloom.exchange.privacy import Release, check, epsilon, sentence, strongest
from support.clients import tiny_clients
from support.models import nested
from support.simulate import SOLVER

accounting = pytest.importorskip("dp_accounting", reason="needs fedloom[privacy]")
DELTA = 1e-5
SIZES = (30, 57, 44)


def analytic(strength: float, delta: float) -> float:
    """The exact epsilon of a Gaussian release: delta = P(s/2 - e/s) - exp(e) P(-s/2 - e/s), by halving."""

    def excess(e: float) -> float:
        below = [
            0.5 * math.erfc(-t / math.sqrt(2))
            for t in (strength / 2 - e / strength, -strength / 2 - e / strength)
        ]
        return below[0] - math.exp(e) * below[1] - delta

    low, high = 0.0, 500.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


@pytest.mark.parametrize(("z", "expected"), [(0.5, 10.0), (1, 4.38), (2, 1.99), (4, 0.93)])
def test_one_release_costs_what_the_table_says(z: float, expected: float) -> None:
    assert round(epsilon(1 / z, DELTA), 2) == expected
    release = Release(
        smallest=50, clip=28.0, noise=z * 2 * 28 / 50
    )  # deviation z times the sensitivity 2C/M
    assert round(epsilon(release.samples, DELTA), 2) == expected


@pytest.mark.parametrize("strength", [0.02, 0.3, 1.0, 4.0, 15.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_epsilon_is_the_closed_form_and_never_below_it(strength: float, delta: float) -> None:
    exact, found = analytic(strength, delta), epsilon(strength, delta)
    assert exact - 1e-9 <= found <= exact * 1.0001 + 1e-9


@pytest.mark.parametrize(
    ("limit", "z", "deviations"),
    [
        (1, 3.73, (41.8, 20.9, 4.2, 0.42)),
        (8, 0.60, (6.7, 3.4, 0.67, 0.07)),
        (30, 0.21, (2.4, 1.2, 0.24, 0.02)),
    ],
)
def test_the_noise_that_a_limit_needs_is_that_of_the_table(
    limit: float, z: float, deviations: tuple[float, ...]
) -> None:
    """Pixels of norm 28, averages of 5, 10, 50 and 500."""
    allowed = strongest(limit, DELTA)
    assert epsilon(allowed, DELTA) <= limit <= epsilon(allowed * 1.001, DELTA)
    assert 1 / allowed == pytest.approx(z, abs=0.0051)
    for size, deviation in zip((5, 10, 50, 500), deviations, strict=True):
        needed = Release(size, 28.0, 1.0).samples / allowed
        digits = len(str(deviation).partition(".")[2])
        assert needed == pytest.approx(deviation, abs=0.51 * 10**-digits)


def test_labels_have_a_budget_of_their_own() -> None:
    release = Release(smallest=20, clip=5.0, noise=0.4, label_noise=0.05)
    assert release.samples == pytest.approx(2 * 5 / 20 / 0.4) and release.labels == pytest.approx(
        math.sqrt(2) / 20 / 0.05
    )
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    for strength in (release.samples, release.labels):
        accountant.compose(accounting.GaussianDpEvent(1 / strength))
    both = epsilon(release.strength, DELTA)
    assert both == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert both > max(epsilon(release.samples, DELTA), epsilon(release.labels, DELTA))
    assert math.isinf(Release(20, 5.0, 0.4).strength)


def test_an_exchange_that_is_made_again_is_paid_for_again() -> None:
    once, thrice = (Release(20, 5.0, 0.4, 0.05, releases=n) for n in (1, 3))
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(accounting.GaussianDpEvent(1 / once.strength), 3)
    assert epsilon(thrice.strength, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)


@pytest.mark.parametrize(
    ("release", "said"),
    [
        (
            Release(5),
            "the smallest of 5 samples; averaging alone guarantees nothing: set clip, noise and label_noise",
        ),
        (Release(1), "the smallest of a single sample; averaging alone guarantees nothing"),
        (
            Release(5, noise=0.3),
            "noise guarantees nothing as long as a sample's norm has no bound: set clip",
        ),
        (Release(5, clip=3.0), "averaging alone guarantees nothing"),
        (
            Release(50, 28.0, 1.12),
            "(4.378, 1e-05), but their labels are sent without noise, so for both there is no guarantee",
        ),
        (
            Release(50, 28.0, 1.12, 0.1, public=True),
            "but their labels depend on the split by class, so for both there is no guarantee",
        ),
        (Release(50, 28.0, 1.12, 1.0), "the seed, and 4.378 for the samples without their labels"),
        (
            Release(5, 28.0, 0.01, 1.0),
            "(epsilon, delta) = (above 5000, 1e-05) against whoever does not know the seed",
        ),
    ],
)
def test_what_is_guaranteed_is_said(release: Release, said: str) -> None:
    assert said in sentence(release, DELTA)


def test_the_sum_of_both_budgets_is_what_is_said_first() -> None:
    release = Release(50, 28.0, 1.12, math.sqrt(2) / 50)  # both of strength 1
    figure = math.ceil(analytic(math.sqrt(2), DELTA) * 1000) / 1000
    assert f"(epsilon, delta) = ({figure}, 1e-05) against" in sentence(release, DELTA)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "clip and noise and label_noise"),
        ({"clip": 3.0, "noise": 1.0}, "label_noise"),
        ({"noise": 1.0, "label_noise": 1.0}, "clip"),
        ({"clip": 3.0, "noise": 1.0, "label_noise": 1.0, "split": "same-class"}, "split=random"),
    ],
)
def test_a_limit_is_refused_where_nothing_is_guaranteed(
    given: dict[str, float], missing: str
) -> None:
    with pytest.raises(
        UserError, match=f"epsilon=8 at delta=1e-05 cannot be kept: .* without {missing}$"
    ):
        averaged_data_exchange(size=10, epsilon=8.0, **given).notice(SIZES, 1)


def test_a_limit_that_is_broken_is_refused_with_what_would_keep_it() -> None:
    release = Release(10, 3.0, 0.5, 0.1)
    with pytest.raises(UserError) as refused:
        check(release, 4.0, DELTA)
    words = str(refused.value).split()
    noise, labels = (
        float(words[words.index(name) + 2].rstrip(",")) for name in ("noise", "label_noise")
    )
    check(Release(10, 3.0, noise, labels), 4.0, DELTA)
    with pytest.raises(
        UserError, match=r"epsilon=4 at delta=1e-05 is not kept: the exchange has epsilon 4\.0"
    ):
        check(Release(10, 3.0, noise * 0.99, labels * 0.99), 4.0, DELTA)


def test_the_smallest_group_of_all_clients_decides() -> None:
    private = {"clip": 3.0, "noise": 1.0, "label_noise": 1.0}
    assert "smallest of 2 samples" in averaged_data_exchange(size=5, **private).notice(
        (30, 57, 45), 1
    )
    assert "smallest of 5 samples" in averaged_data_exchange(size=5, tail="drop", **private).notice(
        (30, 57, 45, 3), 1
    )
    assert "smallest of 30 samples" in averaged_data_exchange(**private).notice((30, 57, 45), 1)
    assert "smallest of 45 samples" in averaged_data_exchange(least=31, **private).notice(
        (30, 57, 45), 1
    )
    assert "a single sample" in averaged_data_exchange(size=5, split="same-class").notice(
        (30, 57, 45), 1
    )
    for given in ({"least": 58}, {"size": 58, "tail": "drop"}):
        with pytest.raises(
            UserError, match="no client has an average to send: the largest has 57 samples"
        ):
            averaged_data_exchange(**given).notice((30, 57, 45), 1)


def test_the_user_hears_of_it_before_anything_is_sent() -> None:
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
        "exchange 'mashed': clients send averages of their data, the smallest of a single sample; averaging"
    )
    with pytest.raises(UserError, match="is not kept"):
        notices(federation(clip=1.0, noise=0.01, label_noise=0.01, epsilon=1.0), 3)
    assert notices(Federation(Method("m"), nested, tiny_clients(), SOLVER, Key.root(0)), 3) == []


def test_without_the_accountant_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UserError, match=r"needs dp-accounting; pip install \"fedloom\[privacy\]\""):
        epsilon(1.0, DELTA)
    assert "averaging alone" in sentence(Release(5), DELTA)
