"""The ResNets of FedAlign and FedMLB against numbers of the authors' own code."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.words import Word
from fedloom.models.layers import make_norm
from fedloom.models.registry import build
from fedloom.models.residual import residual_chain
from support.waves import by_formula

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as file:
        return dict(file)


def resnet56_by_formula() -> Chain:
    return by_formula(build(Word("resnet56"), (3, 32, 32), 100, Key.root(0), dtype=torch.float64))


def off(found: torch.Tensor, expected: np.ndarray) -> float:
    """Largest difference, relative to the largest expected magnitude."""
    return float(np.abs(found.detach().numpy() - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(
    ("tag", "word", "shape", "classes"),
    [
        ("r56_100", Word("resnet56"), (3, 32, 32), 100),
        ("r18_200", Word("resnet18", {"stem": "imagenet", "norm": "batch"}), (3, 224, 224), 200),
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


def our_name(official: str) -> str:
    """FedMLB's name of a tensor in our words."""
    name = re.sub(r"^(conv1|bn1)\.", lambda m: f"stem.{m[1][:-1]}.", official)
    name = re.sub(r"^(layer\d\.\d)\.(conv|bn)", r"\1.body.\2", name)
    name = name.replace("shortcut.0.", "shortcut.conv.").replace("shortcut.1.", "shortcut.norm.")
    return name.replace("linear.", "head.fc.").replace("bn", "norm")


def tiny(known: dict[str, np.ndarray], side: str) -> Chain:
    chain = residual_chain((3, 8, 8), 5, (1, 1, 1, 1), (4, 6, 8, 10), make_norm("group", 2)).double()
    weights = {n.removeprefix(f"{side}/"): torch.from_numpy(t) for n, t in known.items() if n.startswith(f"{side}/")}
    chain.load_state_dict({our_name(n): t for n, t in weights.items()}, strict=True)
    return chain


def test_fedmlb_main_and_hybrid_logits():
    known = golden("fedmlb/fedmlb_tiny")
    mine, received = tiny(known, "local"), tiny(known, "global")
    x = torch.from_numpy(known["x"])
    taps = mine.taps(x)
    assert np.abs(taps["head"].detach().numpy() - known["logits_main"]).max() < 1e-12
    assert np.abs(received(x).detach().numpy() - known["logits_global"]).max() < 1e-12
    hybrids = torch.stack([received.run(taps[cut], after=cut) for cut in mine.names[:-1]])
    assert np.abs(hybrids.detach().numpy() - known["logits_hybrid"]).max() < 1e-12
