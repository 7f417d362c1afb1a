"""Memory layout and compiled blocks: other bits, the same numbers, the same on exact engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.params import Params, sha256
from fedloom.core.round import rounds
from fedloom.core.simulation import init_state
from fedloom.core.state import MemoryStore
from fedloom.core.user_code import allow
from fedloom.engines.vectorised import Vectorised
from fedloom.experiment import memory_layout
from fedloom.experiment.build import resolve_auto
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.experiment.train import train
from fedloom.models.resnet import resnet18
from fedloom.settings.config import load

SMALL = {
    "rounds": 2,
    "model": "lenet5",
    "data": {"clients": 400, "partition": "iid"},
    "train": {"batch": 10, "clip": 5.0},
    "sample": {"per_round": 3},
    "evaluate": {"every": 2, "batch": 500},
    "engine": "inprocess",
}


def prepared(**changes: Any) -> PreparedRun:
    return prepare(load({**SMALL, **changes}))


def final(of: PreparedRun) -> Params:
    *_, (state, _) = rounds(
        of.simulation, init_state(of.simulation, of.model), MemoryStore(), of.config.rounds
    )
    return state.params


def gap(a: Params, b: Params) -> float:
    assert a.keys() == b.keys()
    return max(float((t - b[n]).abs().max()) for n, t in a.items())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_channels_last_gives_the_same_numbers(dtype: str, tolerance: float) -> None:
    assert (
        gap(
            final(prepared(dtype=dtype, layout="contiguous")),
            final(prepared(dtype=dtype, layout="channels_last")),
        )
        < tolerance
    )


@pytest.fixture
def seen() -> Iterator[list[bool]]:
    """For every call of a convolution: whether its input and its weights are channels last."""
    found: list[bool] = []

    def look(module: torch.nn.Module, inputs: Any) -> None:
        if isinstance(module, torch.nn.Conv2d):
            found.append(
                all(
                    t.is_contiguous(memory_format=torch.channels_last)
                    for t in (inputs[0], module.weight)
                )
            )

    handle = torch.nn.modules.module.register_module_forward_pre_hook(look)
    yield found
    handle.remove()


def test_weights_and_batches_have_the_layout(seen: list[bool]) -> None:
    """In training and in evaluation; but what a client sends is contiguous."""
    of = prepared(layout="channels_last", rounds=1, sample={"per_round": 1})
    seen.clear()
    train(of)
    assert seen and all(seen)
    assert all(t.is_contiguous() for t in final(of).values())
    seen.clear()
    final(prepared(layout="contiguous", rounds=1, sample={"per_round": 1}))
    assert not all(seen)


def test_channels_last_has_the_same_bits_in_a_pool() -> None:
    here = final(prepared(layout="channels_last", method="scaffold"))
    with prepared(layout="channels_last", method="scaffold", engine="pool", workers=1) as of:
        assert sha256(final(of)) == sha256(here)


def test_vectorised_weights_are_contiguous_whatever_the_layout() -> None:
    of = prepared(layout="channels_last", engine="vectorised", rounds=1)
    assert isinstance(of.simulation.engine, Vectorised) and of.simulation.engine.why_not is None
    assert sha256(final(of)) == sha256(
        final(prepared(layout="contiguous", engine="vectorised", rounds=1))
    )


def test_auto_is_resolved_before_it_is_saved() -> None:
    config = load({"model": "lenet5"})
    assert (config.layout, resolve_auto(config).layout) == ("auto", "channels_last")
    assert resolve_auto(load({"model": "own.py:net"})).layout == "contiguous"  # it may call `view`
    assert resolve_auto(load({"layout": "contiguous"})).layout == "contiguous"
    assert sha256(final(prepared())) == sha256(final(prepared(layout="channels_last")))


@pytest.mark.parametrize(("capability", "stay"), [("AVX512", 7), ("AVX2", 0), ("any", 0)])
def test_wide_convolutions_have_the_layout_that_is_faster_on_the_processor(
    monkeypatch: pytest.MonkeyPatch, seen: list[bool], capability: str, stay: int
) -> None:
    """Seven of ResNet-18: three over 512 channels, four over 256; none if it is narrower."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    for width, count in ((32, 0), (64, stay)):
        plain, laid = (resnet18((3, 32, 32), 10, width=width).double() for _ in range(2))
        laid.load_state_dict(plain.state_dict())
        expected = plain(x)
        memory_layout.arrange(laid, "channels_last", compiled=False)
        seen.clear()
        taps = laid.taps(x)
        assert len(seen) == 20 and seen.count(False) == count
        assert all(
            t.is_contiguous(memory_format=torch.channels_last)
            for t in taps.values()
            if t.dim() == 4
        )
        assert torch.allclose(taps["head"], expected, rtol=0, atol=1e-12)


STRIDED = """
from torch import nn

def net(shape, classes, channels: int = 4):
    convolutions = nn.Conv2d(shape[0], channels, 3), nn.Conv2d(channels, 8, 1, stride=2)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)
    return nn.Sequential(*convolutions, *head)
"""


def test_a_model_that_would_damage_memory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(STRIDED)
    own = f"{tmp_path / 'own.py'}:net"
    allow([own])
    with pytest.raises(
        UserError,
        match=r"1x1 convolution of 4 channels with a stride.*layout=channels_last.*leave that",
    ):
        prepared(model=own, layout="channels_last")
    for free in ({"model": own}, {"model": f"{own}(channels=8)", "layout": "channels_last"}):
        prepared(**free)


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [("compiler", "no 'g[+]{2}' here|clang"), ("headers", "needs Python's C headers")],
)
def test_a_missing_compiler_is_an_error_before_round_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str, sentence: str
) -> None:
    monkeypatch.setattr(
        memory_layout.shutil, "which", lambda name: None if missing == "compiler" else name
    )
    monkeypatch.setattr(memory_layout.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(UserError, match=sentence):
        prepared(compile=True)
    prepared()


@pytest.mark.long
def test_compiled_blocks_give_the_same_numbers_and_keep_their_taps() -> None:
    eager, compiled = prepared(dtype="float64"), prepared(dtype="float64", compile=True)
    assert gap(final(eager), final(compiled)) < 1e-8
    x, _ = compiled.simulation.federation.test[0]
    taps = compiled.model.taps(x)
    assert (
        tuple(taps) == eager.model.names
        and compiled.model.state_dict().keys() == eager.model.state_dict().keys()
    )
    assert all(torch.allclose(t, taps[n], atol=1e-10) for n, t in eager.model.taps(x).items())
    heard: list[str] = []
    train(prepared(compile=True, engine="vectorised", rounds=1), warn=heard.append)
    assert heard == [
        "note: run in-process, since compile=true does not work with vmap, "
        "which traces the model itself"
    ]


def test_channels_last_leaves_the_weights_of_volumes_as_they_are() -> None:
    """A model of volumes and of their projections has both kinds."""
    chain = Chain({"flat": nn.Conv2d(2, 3, 3), "deep": nn.Conv3d(2, 3, 3)})
    memory_layout.arrange(chain, "channels_last", compiled=False)
    flat, deep = chain.get_parameter("flat.weight"), chain.get_parameter("deep.weight")
    assert flat.is_contiguous(memory_format=torch.channels_last) and deep.is_contiguous()
