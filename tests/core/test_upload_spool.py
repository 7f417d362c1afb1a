"""Uploads on the disk: the same bits as in memory, for any method and whoever is left out."""

from __future__ import annotations

import errno
import gc
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedloom.core import upload_spool
from fedloom.core.errors import RunError
from fedloom.core.method import Method
from fedloom.core.params import sha256
from fedloom.core.request import Broadcast, Task
from fedloom.core.round import rounds
from fedloom.core.sampler import everyone, uniform
from fedloom.core.server import Absent, Cohort, Memory, Stage, apply_mean, no_memory
from fedloom.core.server import weighted_sum as folded
from fedloom.core.simulation import Engine, init_state
from fedloom.core.spec import parse
from fedloom.core.state import MemoryStore
from fedloom.core.upload_spool import StoredUploads, UploadSpool, upload_bytes
from fedloom.methods.registry import build
from support.simulate import initial_model, make_simulation

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_spool, "IN_MEMORY_BYTES", 0)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (9 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda t: t,
    "transposed": lambda t: t.transpose(0, -1) if t.dim() else t,
    "every other": lambda t: t[::2] if t.dim() else t,
    "expanded": lambda t: t.expand(3, *t.shape),
    "channels last": lambda t: (
        t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t
    ),
}


@given(
    st.lists(st.integers(0, 3), max_size=4),
    st.sampled_from(DTYPES),
    st.sampled_from(sorted(LAYOUTS)),
)
def test_what_is_read_is_what_was_written(
    shape: list[int], dtype: torch.dtype, layout: str
) -> None:
    tensor = LAYOUTS[layout](drawn(tuple(shape), dtype, 0))
    with pytest.MonkeyPatch.context() as patch, UploadSpool() as spool:
        patch.setattr(upload_spool, "IN_MEMORY_BYTES", -1)
        stored = [spool.keep({"model": {"a": tensor, "b": tensor}}) for _ in range(2)]
        for uploads in stored:
            assert isinstance(uploads, StoredUploads) and upload_bytes(uploads) == 2 * tensor.nbytes
            for read in uploads["model"].values():
                assert read.dtype == tensor.dtype and torch.equal(read, tensor)
                assert read.stride() == torch.empty_like(tensor).stride()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.sampled_from(DTYPES[:3]))
def test_a_sum_read_from_the_disk_has_the_bits_of_one_in_memory(
    samples: list[int], dtype: torch.dtype
) -> None:
    shares = [n / sum(samples) for n in samples]
    replies = [
        {"model": {"w": drawn((3, 5), dtype, k), "steps": torch.tensor(k)}}
        for k in range(len(samples))
    ]
    in_memory = sum_of_all([reply["model"] for reply in replies], shares)
    with pytest.MonkeyPatch.context() as patch, UploadSpool() as spool:
        patch.setattr(upload_spool, "IN_MEMORY_BYTES", 200)  # some stay in memory
        kept = [spool.keep(reply) for reply in replies]
        total = folded((uploads["model"] for uploads in kept), shares)
    assert sha256(total) == sha256(in_memory)


def sum_of_all(uploads: list[dict[str, Tensor]], shares: list[float]) -> dict[str, Tensor]:
    """As the mean is defined: one product after the other is added, integers in float64."""
    as_float = [
        {n: t if t.is_floating_point() else t.double() for n, t in u.items()} for u in uploads
    ]
    total = {n: t * shares[0] for n, t in as_float[0].items()}
    for upload, share in zip(as_float[1:], shares[1:], strict=True):
        total = {n: t.add(upload[n], alpha=share) for n, t in total.items()}
    return total


def test_a_sum_holds_one_upload_at_a_time() -> None:
    alive: list[int] = []

    def made() -> Iterator[dict[str, Tensor]]:
        for _ in range(4):
            gc.collect()
            alive.append(sum(type(o) is Counted for o in gc.get_objects()))
            yield {"w": torch.ones(2).as_subclass(Counted)}

    folded(made(), [0.25] * 4)
    assert alive == [0, *[alive[1]] * 3] and alive[1] <= 1  # at most the sum itself


class Counted(Tensor):
    """A tensor that can be told apart."""


class Troubled:
    """An engine in which clients 1 and 4 send nothing usable, and replies come in any order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        answers = dict(self.engine.map(sent, tasks))
        for client in sorted(answers, key=lambda c: (c * 5) % 7):
            reply = answers[client]
            if client == 1:
                reply = Absent(1, "it was tired")
            if client == 4:
                reply = replace(reply, samples=10**6)
            yield client, reply


def median() -> Method:
    """A combiner that needs the uploads of all clients at once."""

    def step(memory: Memory, c: Cohort) -> tuple[Memory, Cohort]:
        uploads = [reply.uploads["model"] for reply in c.replies]
        middle = {n: torch.stack([u[n].double() for u in uploads]).median(0)[0] for n in uploads[0]}
        return memory, c.with_mean("model", middle)

    stages = (Stage("combine", "median", no_memory, step, handles="model"), apply_mean())
    return Method("median", server=stages)


METHODS = [
    "fedavg",
    "scaffold",
    "feddyn",
    "fedadam",
    "fedbn",
    "ditto",
    "fedgkd",
    "scaffold+fedavgm",
]


def trained(method: Method, cohort: int | None, engine: type | None = None) -> list[Any]:
    """A digest of everything after each round, and what the report says."""
    sampler = everyone() if cohort is None else uniform(cohort)
    simulation = make_simulation(method, sampler=sampler, strict=engine is None)
    if engine is not None:
        simulation = replace(simulation, engine=engine(simulation.engine))
    state = init_state(simulation, initial_model(simulation.federation.build))
    store, seen = MemoryStore(), []
    for after, report in rounds(simulation, state, store, 2):
        clients = range(len(simulation.federation.clients))
        memories = [sha256(p) for c in clients for _, p in sorted(store.recall(c).items())]
        told = report.clients, report.rejected, report.bytes_up, report.loss, report.skipped
        seen.append((sha256(after.tensors()), memories, told))
    return seen


@pytest.mark.parametrize("engine", [None, Troubled])
@pytest.mark.parametrize("cohort", [1, 3, None])
@pytest.mark.parametrize("name", METHODS)
def test_a_round_from_the_disk_has_the_bits_of_one_in_memory(
    name: str, cohort: int | None, engine: type | None, request: pytest.FixtureRequest
) -> None:
    method = build(parse(name))
    in_memory = trained(method, cohort, engine)
    request.getfixturevalue("on_disk")
    assert trained(method, cohort, engine) == in_memory


def test_a_combiner_may_take_all_uploads_at_once(request: pytest.FixtureRequest) -> None:
    in_memory = trained(median(), None)
    request.getfixturevalue("on_disk")
    assert trained(median(), None) == in_memory


@pytest.mark.usefixtures("on_disk")
def test_a_strict_guard_stops_at_an_invalid_reply() -> None:
    simulation = make_simulation(build(parse("fedavg")), sampler=everyone())
    simulation = replace(simulation, engine=Troubled(simulation.engine))
    state = init_state(simulation, initial_model(simulation.federation.build))
    with pytest.raises(RunError, match="client 1"):
        list(rounds(simulation, state, MemoryStore(), 1))


@pytest.mark.usefixtures("on_disk")
def test_no_room_on_the_disk_is_an_error_that_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with UploadSpool() as spool, pytest.raises(RunError, match=r"missing: .*set TMPDIR"):
        spool.keep({"model": {"w": torch.ones(3)}})


@pytest.mark.usefixtures("on_disk")
def test_no_usable_temporary_folder_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])
    with UploadSpool() as spool, pytest.raises(RunError, match=r"No usable temporary .*set TMPDIR"):
        spool.keep({"model": {"w": torch.ones(3)}})


class Full(io.BytesIO):
    """A file on a disk without room."""

    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("on_disk")
def test_a_full_disk_is_one_error_and_not_another_when_the_file_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: io.BufferedWriter(Full()))
    with pytest.raises(RunError, match="No space left on device"), UploadSpool() as spool:
        for _ in range(2):  # the first waits in Python's own buffer
            spool.keep({"model": {"w": torch.ones(3)}})


def test_small_rounds_make_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: pytest.fail("a file was made"))
    trained(build(parse("fedavg")), 3)
