"""The ledger of the exchanges: every byte is counted once, also in a resumed run."""

from dataclasses import replace

import torch

from fedloom.core.method import Method
from fedloom.core.params import nbytes
from fedloom.core.round import rounds
from fedloom.core.simulation import resume_state
from fedloom.core.state import MemoryStore
from fedloom.exchange.averaged_data_exchange import averaged_data_exchange
from fedloom.methods.scaffold import scaffold
from support.exchanges import blending, other_data
from support.models import CLASSES
from support.simulate import saved_and_loaded, simulate


def test_answers_are_counted_once_up_and_once_down_per_client() -> None:
    result = simulate(blending(size=4), 4)
    start, model = result.start, nbytes(result.start.params)
    entries = sum(-(-size // 4) for size in (5, 9, 12, 7, 16, 8, 21, 10))
    pooled = entries * (8 * result.start.shared["mashed"]["x"][0].numel() + 8 * CLASSES + 8)
    assert nbytes(start.shared["mashed"]) == pooled
    has: set[int] = set()
    for number, report in enumerate(result.reports):
        fresh = set(report.clients) - has
        has |= fresh
        assert report.bytes_up == model * len(report.clients) + (pooled if number == 0 else 0)
        assert report.bytes_down == model * len(report.clients) + pooled * len(fresh)
    assert len(has) > 3  # otherwise no client took part twice, and nothing was tested


def test_merged_averages_reduce_only_the_download() -> None:
    plain, merged = (simulate(blending(size=1, merge=m), 1).reports[0] for m in (1, 4))
    assert plain.bytes_up == merged.bytes_up and plain.bytes_down > merged.bytes_down


def test_what_changes_with_the_weights_is_counted_every_round() -> None:
    joined = replace(scaffold(), prologue=(averaged_data_exchange(),))
    alone, both = simulate(scaffold(), 3), simulate(joined, 3)
    pooled, has = nbytes(both.start.shared["mashed"]), set()
    for one, two in zip(alone.reports, both.reports, strict=True):
        assert two.bytes_down - one.bytes_down == pooled * len(set(two.clients) - has)
        has |= set(two.clients)


def test_a_resumed_run_keeps_its_averages_and_counts_nothing_twice() -> None:
    whole, half = (
        simulate(blending(size=4, noise=0.1, merge=2), 4),
        simulate(blending(size=4, noise=0.1, merge=2), 2),
    )
    state, store = saved_and_loaded(half)
    assert resume_state(half.simulation, state) is state
    rest = simulate(blending(size=4, noise=0.1, merge=2), 4, resume_from=(state, store))
    assert all(torch.equal(t, rest.state.tensors()[n]) for n, t in whole.state.tensors().items())
    assert [(r.bytes_up, r.bytes_down) for r in (*half.reports, *rest.reports)] == [
        (r.bytes_up, r.bytes_down) for r in whole.reports
    ]
    assert rest.answers and not any(
        "mashed" in a for answers in rest.answers for a in answers.values() if isinstance(a, dict)
    )


def test_a_repeated_exchange_is_sent_to_all_and_only_new_answers_count_as_upload() -> None:
    result = simulate(blending(size=4), 2)
    simulation = other_data(result.simulation, 3)
    state = resume_state(simulation, result.state)
    ((_, report),) = rounds(simulation, state, MemoryStore(), 3)
    model, pooled = nbytes(state.params), state.shared["mashed"]
    news = nbytes({n: t[pooled["owner"] == 3] for n, t in pooled.items()})
    assert report.bytes_up == 3 * model + news
    assert report.bytes_down == 3 * (model + nbytes(pooled))


def test_a_method_without_exchanges_has_no_ledger() -> None:
    result = simulate(Method("plain"), 1)
    assert (
        result.start.memory == {}
        and result.start.shared == {}
        and resume_state(result.simulation, result.state) is result.state
    )
