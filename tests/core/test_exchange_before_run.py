"""Exchanges of a run that is resumed: clients whose data have changed are asked again."""

import pytest
import torch

from fedloom.core.errors import UserError
from fedloom.core.exchange_before_run import notices
from fedloom.core.simulation import resume_state
from support.clients import tiny_clients
from support.exchanges import blending, other_data
from support.simulate import make_simulation, simulate


def test_only_clients_whose_data_changed_give_a_new_answer() -> None:
    result, messages = simulate(blending(size=4, noise=0.1), 2), list[str]()
    before, state = (
        result.state.shared["mashed"],
        resume_state(other_data(result.simulation, 3), result.state, messages.append),
    )
    after = state.shared["mashed"]
    own = before["owner"] == 3
    assert torch.equal(after["x"][~own], before["x"][~own]) and torch.equal(
        after["owner"], before["owner"]
    )
    assert (
        "the data of 1 of 8 clients have changed since the exchange" in messages[0]
        and "exchange 'mashed'" in messages[1]
    )
    shift = after["x"][own] - before["x"][own]
    assert not torch.allclose(
        shift, torch.ones_like(shift), atol=1e-3
    )  # the noise is new, so it cannot be subtracted out
    again = resume_state(other_data(result.simulation, 3), result.state)
    assert all(torch.equal(t, again.tensors()[n]) for n, t in state.tensors().items())
    assert resume_state(other_data(result.simulation, 3), state) is state
    back = resume_state(result.simulation, state)
    assert not torch.equal(
        back.shared["mashed"]["x"], before["x"]
    )  # a third answer, although the data are the first again


def test_another_number_of_clients_are_all_asked_again() -> None:
    result = simulate(blending(), 1)
    fewer = make_simulation(blending(), clients=tiny_clients((5, 9, 12)))
    state = resume_state(fewer, result.state)
    assert state.shared["mashed"]["owner"].tolist() == [0, 1, 2]
    assert state.memory["exchange"]["ledger"]["turn"].tolist() == [1, 1, 1]


def test_every_new_answer_spends_privacy_budget() -> None:
    pytest.importorskip("dp_accounting", reason="needs fedloom[privacy]")
    private = {"clip": 1.0, "noise": 1.0, "label_noise": 1.0}
    result = simulate(blending(**private, epsilon=2.3), 1)
    (said,) = notices(result.simulation.federation, 1)
    assert "(epsilon, delta) = (1.9" in said
    with pytest.raises(UserError, match="is exceeded"):
        resume_state(other_data(result.simulation, 0), result.state)
