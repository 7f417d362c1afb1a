"""Shared memory: one side reads what the other writes, for any shape, and no file remains."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedloom.core.evaluate import ClassCounts, Evaluation
from fedloom.core.server import Reply
from fedloom.engines.arena import Arena
from fedloom.engines.wire import flatten, pack, unflatten, unpack

shapes = st.lists(st.integers(0, 4), max_size=3)
dtypes = st.sampled_from(
    [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16]
)
names = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=6)


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    found = {}
    for name in draw(st.lists(names, unique=True, max_size=5)):
        shape, dtype = draw(shapes), draw(dtypes)
        found[name] = (
            torch.arange(max(1, torch.Size(shape).numel()))
            .view(-1)[: torch.Size(shape).numel()]
            .view(shape)
            .to(dtype)
        )
    return found


@given(tensors(), tensors())
def test_the_other_side_reads_what_was_written_last(
    first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]
) -> None:
    ours = Arena()
    theirs = Arena(os.dup(ours.fd))
    for written in (first, second):
        seen = theirs.read(ours.write(written))
        assert list(seen) == list(written)
        for name, t in written.items():
            assert seen[name].dtype == t.dtype
            assert torch.equal(seen[name], t)
    del seen
    ours.close()
    theirs.close()


def test_an_arena_grows_under_its_readers() -> None:
    ours = Arena()
    theirs = Arena(os.dup(ours.fd))
    small = theirs.read(ours.write({"a": torch.ones(3)}))["a"]
    large = theirs.read(ours.write({"a": torch.arange(100_000.0)}))["a"]
    assert large[-1] == 99_999
    assert small.tolist() == [
        0.0,
        1.0,
        2.0,
    ]  # a view of the same memory: valid until the next write
    ours.close()
    theirs.close()


def test_a_view_shares_memory_and_the_file_is_unlinked() -> None:
    before = set(Path("/dev/shm").glob("fedloom-*")) if Path("/dev/shm").is_dir() else set()
    arena = Arena()
    layout = arena.write({"x": torch.zeros(4)})
    arena.read(layout)["x"][2] = 5.0
    assert arena.read(layout)["x"].tolist() == [0.0, 0.0, 5.0, 0.0]
    assert (
        set(Path("/dev/shm").glob("fedloom-*")) if Path("/dev/shm").is_dir() else set()
    ) == before
    arena.close()


@given(st.dictionaries(names, tensors(), max_size=3))
def test_flattened_groups_come_back(groups: dict[str, dict[str, torch.Tensor]]) -> None:
    back = unflatten(flatten(groups, "p"), "p")
    assert {r: list(p) for r, p in back.items()} == {r: list(p) for r, p in groups.items() if p}


def test_every_kind_of_answer_comes_back() -> None:
    reply = Reply(
        3,
        10,
        8,
        {"model": {"w": torch.ones(2)}, "control": {}},
        {"h": {"w": torch.zeros(1)}, "empty": {}},
        0.5,
        7,
    )
    counts = ClassCounts(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 2.0]), 0.25)
    scored = Evaluation(counts, 4.0, {"auroc": 0.5, "mine": float("nan")})
    predicted = Evaluation(counts, 4.0, {}, torch.eye(4), torch.arange(4))
    weights = {"a.b": torch.arange(3)}
    groups = {"mashed": {"x": torch.ones(1, 2)}, "nothing": {}}
    for answer in (reply, scored, predicted, weights, {}, groups):
        packed = pack(answer)
        assert repr(unpack(packed.facts, packed.tensors)) == repr(answer)
