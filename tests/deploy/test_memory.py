"""A site's memory against a plain dictionary: rounds, rejections, ways back, late requests."""

import hashlib
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fedloom.core.errors import RunError
from fedloom.core.keeper import Memories
from fedloom.deploy.site.memory import Receipt, SiteMemory

NAMES = {0: "north", 1: "south", 2: "west"}
clients = st.sampled_from(sorted(NAMES))
slots = st.sampled_from(["control", "personal", "a|ü"])
some_memories = st.dictionaries(slots, st.floats(-9, 9, width=32), max_size=3)


def tensors(values: dict[str, float]) -> Memories:
    return {slot: {"w": torch.tensor([value, 1.0])} for slot, value in values.items()}


def values(memories: Memories) -> dict[str, float]:
    return {slot: float(params["w"][0]) for slot, params in memories.items()}


class ServerAndSite(RuleBasedStateMachine):
    """The server keeps receipts as it would keep memories; `truth` keeps the memories themselves.

    checkpoints[round] is what both held at the end of that round.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp()) / "memory"
        self.site = SiteMemory(self.folder, NAMES)
        self.receipts: dict[int, Memories] = {}
        self.truth: dict[int, dict[str, float]] = {}
        self.round = self.oldest = 0
        self.checkpoints = {0: ({}, {})}
        self.delayed: list[tuple[int, int, Memories, dict[str, float]]] = []

    def teardown(self) -> None:
        shutil.rmtree(self.folder.parent)

    def work(self, client: int, round: int, carried: Memories, new: dict[str, float]) -> Memories:
        self.site.oldest = self.oldest
        self.site.recall(client, carried)
        return self.site.keep(client, round, tensors(new))

    @rule(
        chosen=st.dictionaries(clients, st.tuples(some_memories, st.booleans())), late=st.booleans()
    )
    def one_round(self, chosen: dict[int, tuple[dict[str, float], bool]], late: bool) -> None:
        for client, (new, accepted) in chosen.items():
            carried = self.receipts.get(client, {})
            if late:
                self.delayed.append((client, self.round, carried, new))
            receipt = self.work(client, self.round, carried, new)
            if accepted and receipt:
                self.receipts[client] = receipt
                self.truth[client] = {**self.truth.get(client, {}), **new}
        self.round += 1
        self.checkpoints[self.round] = (dict(self.receipts), dict(self.truth))

    @rule(back=st.integers(0, 3))
    def server_goes_back(self, back: int) -> None:
        self.round = max(self.oldest, self.round - back)
        self.receipts, self.truth = (dict(kept) for kept in self.checkpoints[self.round])

    @rule()
    def a_request_is_delivered_late(self) -> None:
        """It is worked on, and nobody waits for the answer any more."""
        for client, round, carried, new in self.delayed:
            if round >= self.oldest:
                self.work(client, round, carried, new)
        self.delayed = []

    @rule(kept=st.integers(1, 3))
    def old_checkpoints_are_deleted(self, kept: int) -> None:
        self.oldest = max(self.oldest, self.round - kept)

    @rule()
    def site_restarts(self) -> None:
        self.site = SiteMemory(self.folder, NAMES)

    @invariant()
    def the_site_remembers_what_the_server_knows(self) -> None:
        reader = SiteMemory(self.folder, NAMES)  # another one, which deletes nothing
        for client in NAMES:
            recalled = reader.recall(client, self.receipts.get(client, {}))
            assert values(recalled) == self.truth.get(client, {})


TestServerAndSite = ServerAndSite.TestCase
TestServerAndSite.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)


@pytest.fixture
def memory(tmp_path: Path) -> SiteMemory:
    return SiteMemory(tmp_path / "memory", NAMES)


def kept(memory: SiteMemory, client: int = 0, round: int = 0, **new: float) -> Memories:
    memory.recall(client, {})
    return memory.keep(client, round, tensors(new))


def test_a_receipt_is_all_that_leaves(memory: SiteMemory) -> None:
    receipt = kept(memory, control=0.25)
    assert set(receipt) == {"receipt"} and set(receipt["receipt"]) == {"version", "seal"}
    assert receipt["receipt"]["version"].item() == 1
    assert sum(t.nbytes for t in receipt["receipt"].values()) == 8 + 32
    assert values(memory.recall(0, receipt)) == {"control": 0.25}


def test_a_rejected_version_does_not_replace_the_one_the_server_knows(memory: SiteMemory) -> None:
    """Its client is not asked for a while, and old checkpoints are deleted meanwhile."""
    known = kept(memory, round=0, control=1.0)
    memory.recall(0, known)
    memory.keep(0, 1, tensors({"control": 2.0}))  # the server rejects this reply
    memory.oldest = 5
    for _ in range(2):
        assert values(memory.recall(0, known)) == {"control": 1.0}


def test_versions_of_a_course_that_the_server_left_do_not_count(memory: SiteMemory) -> None:
    known = kept(memory, round=0, control=1.0)
    memory.recall(0, known)
    left = memory.keep(0, 1, tensors({"control": 2.0}))
    memory.recall(0, left)  # it was accepted, and then the server went back
    memory.oldest = 5
    for _ in range(2):
        assert values(memory.recall(0, known)) == {"control": 1.0}


def test_the_same_training_gives_the_same_receipt(memory: SiteMemory) -> None:
    first, again = (Receipt.of(kept(memory, control=1.0)) for _ in range(2))
    assert first == again and memory.versions(0) == [first]


def test_nothing_to_remember_leaves_no_file(memory: SiteMemory) -> None:
    assert kept(memory) == {}
    assert not memory.folder.exists()


def test_an_unknown_receipt_is_refused(memory: SiteMemory) -> None:
    kept(memory, control=1.0)
    unknown = Receipt(3, hashlib.sha256().hexdigest()).tensors()
    reason = (
        "client 'north' is not the one the server knows: it knows version 3, and the site has 1"
    )
    with pytest.raises(RunError, match=reason):
        memory.recall(0, unknown)


def test_the_receipt_of_another_client_is_refused(memory: SiteMemory) -> None:
    receipt = kept(memory, client=1, control=1.0)
    with pytest.raises(RunError, match="'north' is not the one the server knows"):
        memory.recall(0, receipt)


def test_a_damaged_file_is_refused(memory: SiteMemory) -> None:
    receipt = kept(memory, control=1.0)
    (file,) = memory.folder.iterdir()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(RunError, match="version 1 is damaged"):
        memory.recall(0, receipt)


@pytest.mark.parametrize(
    ("carried", "problem"),
    [
        ({"control": {"w": torch.zeros(2)}}, "other names"),
        ({"receipt": {"version": torch.tensor(1)}}, "other names"),
        ({"receipt": {"version": torch.tensor(0), "seal": torch.zeros(32)}}, "not a round"),
        ({"receipt": {"version": torch.tensor([1]), "seal": torch.zeros(32)}}, "not a round"),
        ({"receipt": {"version": torch.tensor(1), "seal": torch.zeros(32)}}, "not a checksum"),
    ],
)
def test_what_is_no_receipt_is_refused(memory: SiteMemory, carried: Memories, problem: str) -> None:
    with pytest.raises(RunError, match=problem):
        memory.recall(0, carried)


def test_what_is_not_finite_is_not_kept(memory: SiteMemory) -> None:
    with pytest.raises(RunError, match="its memory 'control' cannot be kept: 'w' is not finite"):
        kept(memory, control=float("nan"))
    assert not memory.folder.exists()


def test_old_versions_are_deleted_and_the_folder_is_private(memory: SiteMemory) -> None:
    receipt: Memories = {}
    for round in range(6):
        memory.oldest = max(0, round - 2)
        memory.recall(0, receipt)
        receipt = memory.keep(0, round, tensors({"control": float(round)}))
    assert [version for version, _ in memory.versions(0)] == [3, 4, 5, 6]
    assert memory.folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in memory.folder.iterdir()} == {0o600}
