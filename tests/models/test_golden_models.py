"""The ResNets of FedAlign and FedMLB against numbers of the authors' own code."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.models.registry import build
from support.golden import golden as tensors
from support.golden_fedmlb import golden_resnet
from support.golden_weights import with_golden_weights

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as file:
        return dict(file)


def resnet56_by_formula() -> Chain:
    return with_golden_weights(
        build(Spec("resnet56"), (3, 32, 32), 100, Key.root(0), dtype=torch.float64)
    )


def off(found: torch.Tensor, expected: np.ndarray) -> float:
    """Largest difference, relative to the largest expected magnitude."""
    return float(np.abs(found.detach().numpy() - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(
    ("tag", "word", "shape", "classes"),
    [
        ("r56_100", Spec("resnet56"), (3, 32, 32), 100),
        ("r18_200", Spec("resnet18", {"stem": "imagenet", "norm": "batch"}), (3, 224, 224), 200),
    ],
)
def test_tensors_in_the_order_of_the_official_model(tag, word, shape, classes):
    known = golden("fedalign/i_architecture")
    chain = build(word, shape, classes, Key.root(0), device="meta")
    found = [(*t.shape, *[0] * (4 - t.dim())) for t in chain.state_dict().values()]
    assert found == [tuple(row) for row in known[f"{tag}_shapes"].tolist()]
    kinds = [n.rsplit(".", 1)[1] for n in chain.state_dict()]
    assert kinds == [str(n).rsplit(".", 1)[1] for n in known[f"{tag}_names"]]
    assert sum(p.numel() for p in chain.parameters()) == known[f"{tag}_n_params"]


def test_resnet56_logits():
    known = golden("fedalign/d_stochdepth")
    chain, x = resnet56_by_formula(), torch.from_numpy(known["x"])
    assert off(chain.eval()(x), known["logits_eval_plain_resnet56"]) < 1e-10
    assert off(chain.train()(x), known["logits_train_plain_resnet56"]) < 1e-7
    mean = chain.get_submodule("layer3.5.body.norm3").running_mean
    assert off(mean, known["running_mean_after_plain_train_layer3_5_bn3"]) < 1e-7


def test_fedmlb_main_and_hybrid_logits():
    known = tensors("fedmlb/fedmlb_tiny")
    memories, received = golden_resnet(known, "local"), golden_resnet(known, "global")
    taps = memories.taps(known["x"])
    hybrids = torch.stack([received.run(taps[cut], after=cut) for cut in memories.names[:-1]])
    for found, expected in (
        (taps["head"], "logits_main"),
        (received(known["x"]), "logits_global"),
        (hybrids, "logits_hybrid"),
    ):
        torch.testing.assert_close(found.detach(), known[expected], rtol=0, atol=1e-12)
