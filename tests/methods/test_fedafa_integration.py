"""FedAFA and M2m with images, models, other methods and worker processes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.params import sha256
from fedloom.core.sampler import everyone
from fedloom.core.spec import Spec, parse
from fedloom.data.client import ClientData, normaliser
from fedloom.data.dataset import Dataset, Split
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.pool import Pool
from fedloom.experiment.train import train
from fedloom.methods import registry
from fedloom.methods.fedafa import feature_block, fedafa
from fedloom.methods.m2m import data_range, m2m
from fedloom.methods.ros import ros
from fedloom.models import registry as models
from support.clients import TensorClient
from support.models import CLASSES, nested
from support.simulate import SimulationResult, simulate, standalone_job
from support.small_run import FEW_CLIENTS, prepare_small

TUNED = {"epochs": 2, "lr": 0.03, "batch": 5}
TOLERANCE = 1e-10


def method(text: str) -> Method:
    return registry.build(parse(text))


class Normalise(nn.Module):
    """Normalises per channel, for data that are not normalised."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean, self.std = (
            torch.tensor(t, dtype=torch.float64).view(-1, 1, 1) for t in (mean, std)
        )

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


PLAIN, NORMED = ((0.0, 0.0), (1.0, 1.0)), ((0.6, 0.2), (0.1, 0.5))


def on_images(finale: Method, in_data: bool) -> SimulationResult:
    """Two clients with images that are normalised with the data, or by the model."""
    draws = torch.Generator().manual_seed(4)
    y = torch.tensor([0] * 12 + [1] * 4 + [2] * 2)
    x = torch.randint(0, 120, (len(y), 2, 4, 4), generator=draws) + 60 * y.view(-1, 1, 1, 1)
    pictures = Split(x.to(torch.uint8), y)
    (mean, std), others = (NORMED, PLAIN) if in_data else (PLAIN, NORMED)
    how = normaliser(
        Dataset("pictures", "image", pictures, pictures, ("a", "b", "c"), mean, std), torch.float64
    )
    clients = [ClientData(pictures, rows, how) for rows in (torch.arange(18), torch.arange(3, 18))]

    def build() -> Chain:
        head = nn.Sequential(nn.Flatten(), nn.Linear(48, CLASSES))
        return Chain(
            {
                "normalise": Normalise(*others),
                "body": nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU()),
                "head": head,
            }
        ).double()

    return simulate(finale, 2, build=build, clients=clients, sampler=everyone())


def test_m2m_is_the_same_wherever_images_are_normalised() -> None:
    """Steps, noise and bounds refer to pixels from 0 to 1, not to the model's inputs."""
    inside, outside = (on_images(m2m(0.7, accept=0.3, **TUNED), way) for way in (True, False))
    plain = on_images(ros(**TUNED), True)
    for client in range(2):
        torch.testing.assert_close(
            inside.personal(client), outside.personal(client), rtol=0, atol=TOLERANCE
        )
        assert sha256(inside.personal(client)) != sha256(plain.personal(client))


def test_the_range_of_the_data() -> None:
    """Images: from black to white, per channel. Other data: the range of the client's samples."""
    result = on_images(m2m(), True)
    job = standalone_job(
        result.simulation.federation.build,
        result.state.params,
        result.simulation.federation.clients[0],
    )
    low, length = data_range(job)
    assert low.flatten().tolist() == pytest.approx([-6.0, -0.4])
    assert (low + length).flatten().tolist() == pytest.approx([4.0, 1.6])
    table = TensorClient(
        torch.tensor([[1.0, -2.0], [4.0, -2.0], [3.0, -2.0]]), torch.tensor([0, 1, 1])
    )
    assert [t.tolist() for t in data_range(standalone_job(nested, {}, table))] == [
        [1.0, -2.0],
        [3.0, 0.0],
    ]


def test_the_default_feature_block() -> None:
    """The second of three stages; the paper's ResNet-32 has 112,016 + 352,138 parameters."""
    chain = models.build(Spec("resnet32"), (3, 32, 32), 10, Key.root(0))
    assert feature_block(chain, "") == "layer2"
    (phase,) = fedafa().finale
    sizes = {n: p.numel() for n, p in chain.named_parameters()}
    later = sum(sizes[n] for n in phase.trains(chain) if n in sizes)
    assert (sum(sizes.values()) - later, later) == (112_016, 352_138)
    two = Chain({"body": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
    assert feature_block(two, "") == "body"
    fedafa().check(two)


@pytest.mark.parametrize(
    ("text", "chain", "sentence"),
    [
        ("fedafa(at=layer2)", nested(), r"no block 'layer2'.*body, head, stem"),
        (
            "fedafa(at=head)",
            nested(),
            r"needs a block 'head' that is not its last, "
            r"but the model has the blocks stem, body, head",
        ),
        (
            "fedafa",
            Chain({"all": nn.Linear(2, 2)}),
            r"needs a model of at least 2 blocks, but the model has only the block all",
        ),
        (
            "m2m",
            Chain({"text": nn.Embedding(3, 3), "head": nn.Linear(3, 3)}),
            r"needs a model that takes numbers, not text",
        ),
        ("fedafa+ros", nested(), r"two methods set their own finale"),
        ("fedafa(lam=1.5)", nested(), r"lam=1.5 must be at most 1"),
    ],
)
def test_invalid_uses_raise_a_clear_error(text: str, chain: Chain, sentence: str) -> None:
    with pytest.raises(UserError, match=rf"(?s){sentence}"):
        method(text).check(chain)


@pytest.mark.parametrize(
    "text", ["fedprox+fedafa", "fedbn+fedafa(features=local)", "scaffold+m2m", "fedavgm+m2m"]
)
def test_combinations_run(text: str) -> None:
    joined = method(text)
    joined.check(nested())
    plain, *_ = text.partition("+")
    assert sha256(simulate(joined, 1).personal(2)) != sha256(simulate(method(plain), 1).personal(2))


@pytest.fixture(scope="module")
def pool(fork_server: ForkServer) -> Iterator[Pool]:
    made = Pool(2, fork_server)
    yield made
    made.close()


@pytest.mark.parametrize(
    "text", ["fedafa", "fedafa(features=local, norms=batch)", "m2m(accept=0.1)"]
)
@pytest.mark.posix
def test_the_finale_is_bit_identical_on_a_pool(text: str, pool: Pool) -> None:
    few = {
        **FEW_CLIENTS,
        "data": {"clients": 3, "per_class": 8, "partition": "dirichlet(alpha=0.5)"},
    }
    alone, pooled = (train(prepare_small(text, where, **few)).result for where in (None, pool))
    assert replace(pooled, seconds=0.0) == replace(alone, seconds=0.0)
