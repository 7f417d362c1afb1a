"""train.reset=false: momentum persists between rounds, as in FedAlign's authors' code.

The reference is one PyTorch optimiser per client that is never reset.
"""

import torch

from fedloom.core.key import Key
from fedloom.core.optimisers import SGDRule
from fedloom.core.sampler import uniform
from fedloom.core.solver import Sgd
from fedloom.methods.fedavg import fedavg
from support.clients import tiny_clients
from support.models import nested
from support.oracles import State, World, mean, model_cross_entropy
from support.simulate import initial_model, simulate

RULE = {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}
ROUNDS = 5


def authors(world: World, first: State) -> State:
    """One model and one optimiser per client; weights are loaded each round, momentum stays."""
    sent, models = first, [world.build() for _ in world.clients]
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.1, **RULE) for m in models]
    for t in range(ROUNDS):
        finals, cohort = [], world.cohort(t)
        for client in cohort:
            model, data = models[client], world.clients[client]
            model.load_state_dict(sent)
            for batch in world.batches(t, client):
                optimisers[client].zero_grad()
                model_cross_entropy(model, data.x[batch], data.y[batch]).backward()
                optimisers[client].step()
            finals.append({n: p.clone() for n, p in model.state_dict().items()})
        sent = mean(finals, [len(world.clients[c]) for c in cohort])
    return sent


def test_each_client_keeps_its_momentum_over_the_rounds() -> None:
    world = World(nested, tiny_clients(), Key.root(0), uniform(3))
    expected = authors(world, dict(initial_model(nested).state_dict()))
    kept, reset = (
        simulate(
            fedavg(),
            ROUNDS,
            solver=Sgd(lr=0.1, batch=4, epochs=2, reset=reset, rule=SGDRule(**RULE)),
        ).state.params
        for reset in (False, True)
    )
    for name, tensor in expected.items():
        torch.testing.assert_close(kept[name], tensor, rtol=0, atol=1e-10)
    assert not torch.allclose(reset["head.weight"], expected["head.weight"], rtol=0, atol=1e-4)
