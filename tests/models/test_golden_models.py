"""The ResNets of FedAlign and FedMLB against outputs of the authors' code."""

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


def relative_error(actual: torch.Tensor, expected: np.ndarray) -> float:
    """Largest difference, relative to the largest expected magnitude."""
    return float(np.abs(actual.detach().numpy() - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(
    ("tag", "spec", "shape", "classes"),
    [
        ("r56_100", Spec("resnet56"), (3, 32, 32), 100),
        ("r18_200", Spec("resnet18", {"stem": "imagenet", "norm": "batch"}), (3, 224, 224), 200),
    ],
)
def test_tensors_in_the_order_of_the_official_model(tag, spec, shape, classes):
    expected = golden("fedalign/i_architecture")
    chain = build(spec, shape, classes, Key.root(0), device="meta")
    shapes = [(*t.shape, *[0] * (4 - t.dim())) for t in chain.state_dict().values()]
    assert shapes == [tuple(row) for row in expected[f"{tag}_shapes"].tolist()]
    kinds = [n.rsplit(".", 1)[1] for n in chain.state_dict()]
    assert kinds == [str(n).rsplit(".", 1)[1] for n in expected[f"{tag}_names"]]
    assert sum(p.numel() for p in chain.parameters()) == expected[f"{tag}_n_params"]


def test_resnet56_logits():
    expected = golden("fedalign/d_stochdepth")
    chain, x = resnet56_by_formula(), torch.from_numpy(expected["x"])
    assert relative_error(chain.eval()(x), expected["logits_eval_plain_resnet56"]) < 1e-10
    assert relative_error(chain.train()(x), expected["logits_train_plain_resnet56"]) < 1e-7
    mean = chain.get_submodule("layer3.5.body.norm3").running_mean
    assert relative_error(mean, expected["running_mean_after_plain_train_layer3_5_bn3"]) < 1e-7


def test_fedmlb_main_and_hybrid_logits():
    expected = tensors("fedmlb/fedmlb_tiny")
    local, received = golden_resnet(expected, "local"), golden_resnet(expected, "global")
    taps = local.taps(expected["x"])
    hybrids = torch.stack([received.run(taps[cut], after=cut) for cut in local.names[:-1]])
    for logits, name in (
        (taps["head"], "logits_main"),
        (received(expected["x"]), "logits_global"),
        (hybrids, "logits_hybrid"),
    ):
        torch.testing.assert_close(logits.detach(), expected[name], rtol=0, atol=1e-12)
