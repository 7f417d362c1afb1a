"""The transport on Flower's Grid, with Flower's state and handlers in this process; no HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: see `make test-deploy`")

import httpx
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.app.error import Error
from flwr.supercore.run import RunNotRunningException

from fedloom.core.errors import RunError
from fedloom.engines.flower import grid as grid_module
from fedloom.engines.flower.delivery import REPLY_LIMIT
from fedloom.engines.flower.grid import CLOCK_SECONDS, RECONNECT_SECONDS, GridTransport
from fedloom.engines.flower.records import (
    SMALL,
    MalformedRecord,
    from_record,
    to_record,
)
from fedloom.engines.flower.transport import Failure
from support.fake_site import deployed
from support.flower_in_memory import Answer, InMemoryFlower
from support.simulate import make_simulation

pytestmark = pytest.mark.deploy

PARTS = {"request": b"r" * 100, "broadcast": bytes(range(256)) * 50_000}  # more than one chunk
LIMIT = 50_000_000


@pytest.fixture
def flower() -> InMemoryFlower:
    return InMemoryFlower("ab")


@pytest.fixture
def transport(flower: InMemoryFlower) -> GridTransport:
    return GridTransport(flower.grid, flower.nodes, LIMIT)


def reply_of(
    flower: InMemoryFlower, transport: GridTransport, answer: Answer
) -> dict[str, bytes] | Failure:
    """What the transport makes of the answer of node a."""
    ticket = transport.push("a", {"request": b"x"}, 10.0)
    assert isinstance(ticket, str)
    flower.answer({"a": answer})
    (reply,) = transport.pull([ticket]).values()
    return reply  # type: ignore[return-value]


def test_parts_there_and_back(flower: InMemoryFlower, transport: GridTransport) -> None:
    ticket = transport.push("a", PARTS, 10.0)
    assert transport.pull([ticket]) == {}
    assert flower.answer({"a": lambda content: to_record(from_record(content, LIMIT))}) == ["a"]
    assert transport.pull([ticket]) == {ticket: PARTS}


def test_only_the_sites_of_the_deployment_are_connected(flower: InMemoryFlower) -> None:
    transport = GridTransport(flower.grid, {"a": flower.nodes["a"], "c": 5}, LIMIT)
    assert list(transport.connected()) == ["a"]
    flower.disconnect("a")
    assert list(transport.connected()) == []
    flower.connect("a")
    assert list(transport.connected()) == ["a"]


def test_small_parts_travel_together(flower: InMemoryFlower, transport: GridTransport) -> None:
    """Every object is a request of its own at each hop."""
    transport.push("a", {"request": b"r", "broadcast": b"x" * SMALL}, 10.0)
    assert len(flower.client.pushed) == 3  # the message, its content, one record
    transport.push("a", {"request": b"r", "broadcast": b"x" * (SMALL + 1)}, 10.0)
    assert len(flower.client.pushed) == 3 + 6  # and a record with an array with a piece


def test_the_broadcast_is_stored_once_for_all_sites(
    flower: InMemoryFlower, transport: GridTransport
) -> None:
    transport.push("a", PARTS, 10.0)
    before = len(flower.client.pushed)
    transport.push("b", {**PARTS, "request": b"other"}, 10.0)
    assert before >= 7  # message, records, array, chunks
    assert len(flower.client.pushed) - before <= 5  # no chunk of the broadcast among them


def test_the_same_request_can_be_pushed_twice(
    flower: InMemoryFlower, transport: GridTransport
) -> None:
    tickets = [transport.push("a", PARTS, 10.0) for _ in range(2)]
    assert len(set(tickets)) == 2
    flower.answer({"a": lambda content: content})
    assert transport.pull(tickets) == dict.fromkeys(tickets, PARTS)  # type: ignore[arg-type]


def test_a_request_outlives_its_time_by_what_clocks_may_differ(
    flower: InMemoryFlower, transport: GridTransport
) -> None:
    ticket = transport.push("a", PARTS, 10.0)
    metadata = flower.state.message_ins_store[ticket].metadata
    assert metadata.ttl == 10.0 + CLOCK_SECONDS
    assert metadata.dst_node_id == flower.nodes["a"]


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (
            2,
            "Traceback ...\n  File x\nValueError: no worker\n",
            "ClientApp.*2.: ValueError: no worker",
        ),
        (8, "stopped responding", "has a ClientApp that ended without an answer"),
        (0, None, r"failed in its ClientApp \(Flower's error 0\)$"),
        (5, "x", "lost its connection"),
    ],
)
def test_errors(
    flower: InMemoryFlower, transport: GridTransport, code: int, text: str | None, expected: str
) -> None:
    reply = reply_of(flower, transport, lambda content: Error(code, text))
    assert isinstance(reply, Failure) and not reply.final
    with pytest.raises(AssertionError, match=expected):
        raise AssertionError(reply.reason)


def test_a_node_that_goes_away_with_a_request(
    flower: InMemoryFlower, transport: GridTransport
) -> None:
    ticket = transport.push("a", PARTS, 10.0)
    flower.disconnect("a")
    reply = transport.pull([ticket])[ticket]
    assert reply == Failure("lost its connection: it did not report to the SuperLink in time")


def test_a_request_that_is_not_accepted(flower: InMemoryFlower, transport: GridTransport) -> None:
    transport.nodes["c"] = 12345
    assert "did not accept" in transport.push("c", PARTS, 10.0).reason


@pytest.mark.parametrize(
    ("limit", "size"),
    [
        pytest.param(1_000_000, 100_000_000, id="100 MB"),
        pytest.param(REPLY_LIMIT, 1_000_000_000, id="1 GB", marks=pytest.mark.long),
    ],
)
def test_a_reply_that_is_too_large_is_not_pulled_to_its_end(
    flower: InMemoryFlower, limit: int, size: int
) -> None:
    transport = GridTransport(flower.grid, flower.nodes, limit)
    content = bytes(range(251)) * (size // 251)  # of chunks that all differ
    reply = reply_of(flower, transport, lambda _: to_record({"reply": content}))
    assert reply == Failure(
        f"sent more than the {limit:,} bytes that are accepted of a reply", final=True
    )
    assert flower.client.pulled < limit + 50_000_000  # several chunks are pulled at a time
    assert len(flower.state.object_store) == 0  # and the SuperLink has forgotten it


def test_the_limit_itself_is_exact(flower: InMemoryFlower) -> None:
    transport = GridTransport(flower.grid, flower.nodes, 1000)
    assert reply_of(flower, transport, lambda _: to_record({"reply": b"x" * 1000}))
    reply = reply_of(flower, transport, lambda _: to_record({"reply": b"x" * 1001}))
    assert reply == Failure("sent a message of 1,001 bytes, and at most 1,000 are accepted")


@pytest.mark.parametrize(
    "content",
    [
        lambda: RecordDict(),
        lambda: RecordDict({"fedloom": ConfigRecord({"a": 1})}),
        lambda: RecordDict({"other": to_record({"a": b"a"})["fedloom"]}),
        lambda: RecordDict({"fedloom.large": to_record(PARTS)["fedloom.large"]}),
        lambda: RecordDict({**to_record(PARTS), "fedloom": ConfigRecord({"broadcast": b""})}),
        lambda: RecordDict({**to_record({"a": b"a"}), "more": ConfigRecord()}),
        lambda: RecordDict({"fedloom": ArrayRecord([__import__("numpy").ones(3)])}),
        lambda: RecordDict(
            {**to_record({"a": b"a"}), "fedloom.large": ArrayRecord([__import__("numpy").ones(3)])}
        ),
    ],
)
def test_other_records(
    flower: InMemoryFlower, transport: GridTransport, content: Callable[[], RecordDict]
) -> None:
    with pytest.raises(MalformedRecord):
        from_record(content(), LIMIT)
    reply = reply_of(flower, transport, lambda _: content())
    assert isinstance(reply, Failure) and reply.reason.startswith("sent a message with")


def test_an_upload_that_never_ends(
    flower: InMemoryFlower, transport: GridTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_module, "UPLOAD_SECONDS", 0.2)
    ticket = transport.push("a", PARTS, 10.0)
    real = flower.state.store_object
    flower.state.store_object = lambda *given: True  # the site's bytes never arrive
    flower.answer({"a": lambda content: to_record({"reply": b"new"})})
    flower.state.store_object = real
    reply = transport.pull([ticket])[ticket]
    assert isinstance(reply, Failure) and reply.reason.startswith("did not finish the upload")


def test_objects_that_flower_cannot_read(
    flower: InMemoryFlower, transport: GridTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_up(*_: Any) -> Any:
        raise KeyError("Forged")

    name = "flwr.supercore.inflatable.inflatable_utils.inflate_object_from_contents"
    ticket = transport.push("a", PARTS, 10.0)
    flower.answer({"a": lambda content: content})
    monkeypatch.setattr(name, made_up)
    expected = Failure("sent a message that Flower cannot read (KeyError)")
    assert transport.pull([ticket]) == {ticket: expected}


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), RunNotRunningException()])
@pytest.mark.parametrize("method", ["connected", "push", "pull"])
def test_without_a_superlink_the_run_stops_and_says_how_to_go_on(
    flower: InMemoryFlower, transport: GridTransport, error: BaseException, method: str
) -> None:
    def fails(request: Any) -> Any:
        raise error

    for name in ("GetNodes", "PushMessages", "PullMessages"):
        setattr(flower.client, name, fails)
    given = {"connected": (), "push": ("a", PARTS, 10.0), "pull": (["x"],)}[method]
    with pytest.raises(RunError, match="resume with `fedloom deploy run`"):
        getattr(transport, method)(*given)


def test_flower_does_not_repeat_calls_for_ever(
    flower: InMemoryFlower, transport: GridTransport
) -> None:
    assert flower.grid._retry_invoker.max_time == RECONNECT_SECONDS


def test_a_round_over_the_grid_has_the_bits_of_the_dictionary() -> None:
    """The engine with this transport, and sites behind Flower's store."""
    from fedloom.core.params import sha256
    from fedloom.core.request import Broadcast, ClientTask
    from fedloom.methods.scaffold import scaffold
    from support.simulate import initial_model

    simulation = make_simulation(scaffold())
    flower = InMemoryFlower("abc")
    params = dict(initial_model(simulation.federation.build).state_dict())

    def uploads(over_grid: bool) -> dict[int, str]:
        deployment = deployed(simulation.federation)
        if over_grid:
            answers = {
                name: lambda content, site=site: to_record(site.handle(from_record(content, LIMIT)))
                for name, site in deployment.sites.items()
            }
            delivery = deployment.engine.delivery
            delivery.transport = GridTransport(flower.grid, flower.nodes, LIMIT)
            delivery.sleep = lambda seconds: flower.answer(answers)  # type: ignore[assignment]
        sent = Broadcast("train", 0, params, timeout=10.0)
        pairs = deployment.engine.map(sent, map(ClientTask, range(8)))
        return {n: sha256(a.uploads["model"]) for n, a in pairs}

    assert uploads(True) == uploads(False)
