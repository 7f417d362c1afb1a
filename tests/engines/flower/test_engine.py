"""The engine on a dictionary instead of a network: the bits of in-process, and every fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from fedloom.core.federation import Federation
from fedloom.core.guard import Guard
from fedloom.core.method import Method
from fedloom.core.params import Params, sha256
from fedloom.core.request import Broadcast, ClientTask, EvaluationTask
from fedloom.core.round import rounds
from fedloom.core.server import Absent, Reply
from fedloom.core.simulation import Simulation, init_state
from fedloom.core.solver import Sgd
from fedloom.core.state import MemoryStore
from fedloom.engines.flower.delivery import Patience, SiteProblem
from fedloom.engines.flower.engine import say_hello
from fedloom.engines.flower.messages import (
    NO_HEADER,
    REPLY,
    Header,
    Parts,
    error_reply,
    hello_reply,
    read_request,
    setup_reply,
    unknown_setup_reply,
)
from fedloom.engines.flower.transport import Failure
from fedloom.engines.inprocess import InProcess
from fedloom.engines.wire import Facts
from fedloom.methods.ditto import ditto
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedmix import fedmix
from fedloom.methods.scaffold import scaffold
from support.dictionary_transport import (
    LIMIT,
    Arrivals,
    Fault,
    Handle,
    changed,
    damaged,
    failure,
    late,
    replied,
    reply_lost,
    request_lost,
    twice,
)
from support.fake_site import DIGEST, Deployment, deployed
from support.simulate import initial_model, make_simulation

CLIENTS = range(8)  # at sites a (0, 3, 6), b (1, 4, 7) and c (2, 5)
AT_B = [1, 4, 7]


def federation() -> Federation:
    """One step per client: these tests are about messages."""
    return make_simulation(fedavg(), solver=Sgd(lr=0.1, batch=4, steps=1)).federation


def training(deployment: Deployment, round: int = 0, timeout: float | None = 10.0) -> Broadcast:
    model = initial_model(deployment.sites["a"].engine.federation.build)
    return Broadcast("train", round, dict(model.state_dict()), timeout=timeout)


def ask(
    deployment: Deployment, round: int = 0, work: str = "train", timeout: float | None = 10.0
) -> dict[int, Any]:
    sent = replace(training(deployment, round, timeout), work=work)
    pairs = list(deployment.engine.map(sent, map(ClientTask, CLIENTS)))
    answers = dict(pairs)
    assert len(pairs) == len(answers) == len(CLIENTS)  # every client once, whatever happens
    return answers


def absent(answers: dict[int, Any]) -> dict[int, str]:
    return {n: a.reason for n, a in sorted(answers.items()) if isinstance(a, Absent)}


def uploads(answers: dict[int, Any]) -> dict[int, str]:
    return {n: sha256(a.uploads["model"]) for n, a in answers.items() if isinstance(a, Reply)}


# ------------------------------------------------------------------ the bits


def every_bit(simulation: Simulation, until: int = 3) -> list[str]:
    """Digests of the state and of the clients' memories after every round, and of the finale."""
    store = MemoryStore()
    state = init_state(simulation, initial_model(simulation.federation.build))
    digests = []
    for after, report in rounds(simulation, state, store, until):
        assert not report.rejected
        remembered = {
            f"{c}/{slot}/{n}": t
            for c in CLIENTS
            for slot, params in store.recall(c).items()
            for n, t in params.items()
        }
        digests.append(sha256(after.tensors() | remembered))
        state = after
    sent = Broadcast("personalise", state.round, state.params, state.shared)
    for c in CLIENTS:
        digests.append(sha256(simulation.answer(sent, ClientTask(c, store.recall(c)))))
    return digests


@pytest.mark.parametrize("method", [fedavg, scaffold, fedmix, ditto], ids=lambda m: m.__name__)
def test_the_bits_of_in_process(method: Callable[[], Method]) -> None:
    in_process = make_simulation(method())
    at_sites = replace(in_process, engine=deployed(in_process.federation).engine)
    digests = every_bit(in_process)
    assert len(set(digests[:3])) == 3
    assert every_bit(at_sites) == digests


def test_faults_that_are_made_up_for_leave_the_bits_alone() -> None:
    in_process = make_simulation(scaffold())
    deployment = deployed(in_process.federation)
    deployment.transport.faults = {
        "a": [request_lost, twice, reply_lost, twice],
        "b": [damaged(30), late(1.0), failure("restarted"), twice, damaged(-1)],
        "c": [late(3.0), replied(b"garbage")],
    }
    assert every_bit(replace(in_process, engine=deployment.engine)) == every_bit(in_process)
    assert not any(deployment.transport.faults.values())  # all of them happened


# ------------------------------------------------------------------ what a site is asked


def test_a_site_is_greeted_once_and_gets_one_message_per_round() -> None:
    deployment = deployed(federation())
    for round in range(2):
        assert not absent(ask(deployment, round))
    expected = ["HelloRequest", "SetupRequest", "WorkRequest", "WorkRequest"]
    assert deployment.kinds == {site: expected for site in "abc"}


def test_only_sites_with_chosen_clients_are_asked() -> None:
    deployment = deployed(federation())
    answers = dict(deployment.engine.map(training(deployment), [ClientTask(4), ClientTask(1)]))
    assert sorted(answers) == [1, 4]
    assert [site for site, asked in deployment.kinds.items() if asked] == ["b"]


def test_a_site_that_has_forgotten_the_setup_is_told_again() -> None:
    deployment = deployed(federation())
    ask(deployment)
    deployment.sites["b"].setups.clear()
    deployment.sites["b"].asked.clear()
    assert not absent(ask(deployment, 1))
    expected = ["WorkRequest", "HelloRequest", "SetupRequest", "WorkRequest"]
    assert deployment.sites["b"].asked == expected


def test_a_site_that_never_keeps_the_setup_is_absent() -> None:
    deployment = deployed(federation())

    def forgets(handle: Handle, parts: Parts) -> Arrivals:
        deployment.sites["b"].setups.clear()
        return [(0.0, handle(parts))]

    deployment.transport.faults["b"] = [forgets] * 10
    reasons = absent(ask(deployment))
    assert list(reasons) == AT_B
    assert set(reasons.values()) == {
        "site 'b' replied to the request 'work' with something else (UnknownSetup)"
    }


def test_a_site_learns_the_oldest_round_that_may_come_back() -> None:
    deployment = deployed(federation())
    deployment.engine.oldest = 17
    ask(deployment)
    assert deployment.sites["c"].oldest == 17


def test_a_report_that_does_not_fit_the_agreement_leaves_the_site_out() -> None:
    def check(site: str, report: Facts) -> str | None:
        assert report == {"site": site}
        return "has other data than agreed: 10 samples, not 12" if site == "b" else None

    deployment = deployed(federation(), check_report=check)
    reason = "site 'b' has other data than agreed: 10 samples, not 12"
    assert absent(ask(deployment)) == dict.fromkeys(AT_B, reason)
    assert deployment.sites["b"].asked == ["HelloRequest"]  # it was not sent any work


def test_a_client_that_no_site_has() -> None:
    deployment = deployed(federation())
    answers = dict(deployment.engine.map(training(deployment), [ClientTask(99)]))
    assert answers == {99: Absent(99, "no site has client 99")}


def test_the_server_evaluates_with_its_own_test_data() -> None:
    some = federation()
    local = InProcess(some)
    deployment = deployed(some, local=local)
    sent = replace(training(deployment), work="evaluate")
    pieces = dict(deployment.engine.map(sent, map(EvaluationTask, range(16))))
    assert sorted(pieces) == list(range(16))
    assert not any(deployment.kinds.values())


def test_without_test_data_at_the_server_a_piece_is_evaluated_by_its_client() -> None:
    deployment = deployed(federation())
    sent = replace(training(deployment), work="evaluate")
    pieces = dict(deployment.engine.map(sent, map(EvaluationTask, CLIENTS)))
    assert sorted(pieces) == list(CLIENTS)
    assert all(asked[-1] == "WorkRequest" for asked in deployment.kinds.values())


def test_close_closes_the_transport() -> None:
    deployment = deployed(federation())
    deployment.engine.close()
    assert deployment.transport.closed


# ------------------------------------------------------------------ faults of a site

OTHER = Header("x-1", "run-1", "b")


def edit(facts: Callable[[Facts], Any]) -> Fault:
    return changed(lambda f, tensors: facts(f))


PERSISTENT: dict[str, tuple[Fault, str]] = {
    "garbage": (replied(b"\0" * 100), "sent bytes that are not a message of fedloom"),
    "nothing": (replied({}), "sent a message without the part 'reply'"),
    "a flipped bit": (damaged(-1), "sent a message whose checksum is wrong"),
    "cut short": (replied(hello_reply(OTHER, {})[REPLY][:-1]), "checksum is wrong"),
    "too large": (replied(b"x" * (LIMIT + 1)), "sent a message of 100,000,001 bytes, and at most"),
    "not a reply": (replied(b"fedloom"), "sent bytes that are not a message"),
    "other protocol": (edit(lambda f: None), ""),  # replaced below
    "reply to something else": (replied(hello_reply(OTHER, {})), "sent a reply to another request"),
    "other run": (edit(lambda f: f.update(run="x")), "belongs to the run 'x'"),
    "other site": (edit(lambda f: f.update(site="a")), "sent a reply in the name of site 'a'"),
    "no header": (edit(lambda f: f.pop("request")), "field 'request' is missing"),
    "unknown kind": (edit(lambda f: f.update(kind="gift")), "a reply of unknown kind 'gift'"),
    "transport": (failure("lost its connection"), "lost its connection"),
    "error": (
        lambda handle, parts: [(0.0, error_reply(read_request(parts, LIMIT).header, "disk full"))],
        "reports: disk full",
    ),
    "unreadable": (replied(error_reply(NO_HEADER, "cannot read it")), "reports: cannot read it"),
    "lost": (request_lost, "gave no answer within 90 s"),
    "lost on the way back": (reply_lost, "gave no answer within 90 s"),
    "late": (late(1000.0), "gave no answer within 90 s"),
}


def other_protocol(handle: Handle, parts: Parts) -> Arrivals:
    reply = handle(parts)[REPLY]
    return [(0.0, {REPLY: reply[:7] + b"\x09" + reply[8:]})]


PERSISTENT["other protocol"] = (other_protocol, "a message of protocol 9")


@pytest.mark.parametrize("fault", PERSISTENT)
def test_a_fault_that_stays_makes_the_clients_of_the_site_absent(fault: str) -> None:
    broken, reason = PERSISTENT[fault]
    deployment = deployed(federation())
    ask(deployment)
    expected = uploads(ask(deployment, 1))
    deployment.transport.faults["b"] = [broken] * 10
    answers = ask(deployment, 1)
    reasons = absent(answers)
    assert list(reasons) == AT_B
    assert all(text.startswith("site 'b' ") and reason in text for text in reasons.values())
    assert uploads(answers) == {n: sha for n, sha in expected.items() if n not in AT_B}
    assert len(deployment.transport.faults["b"]) == 8  # it was asked twice, and no more
    status = deployment.engine.delivery.board.statuses["b"]
    assert status.problem is not None and reason in status.problem
    assert status.last_round == 2  # round 1, counted from 1; what it answered before


@pytest.mark.parametrize("fault", PERSISTENT)
def test_a_fault_that_passes_costs_nothing(fault: str) -> None:
    deployment = deployed(federation())
    expected = uploads(ask(deployment))
    deployment.transport.faults["b"] = [PERSISTENT[fault][0]]
    answers = ask(deployment)
    assert not absent(answers)
    assert uploads(answers) == expected
    assert deployment.engine.delivery.board.statuses["b"].problem is None


@pytest.mark.parametrize("fault", ["late", "garbage", "lost", "error"])
@pytest.mark.parametrize("step", [0, 1], ids=["hello", "setup"])
def test_a_fault_of_the_greeting_leaves_the_site_out(fault: str, step: int) -> None:
    deployment = deployed(federation())
    deployment.transport.faults["b"] = [*[late(0.5)] * step, *[PERSISTENT[fault][0]] * 2]
    reasons = absent(ask(deployment))
    assert list(reasons) == AT_B
    assert "WorkRequest" not in deployment.sites["b"].asked
    assert not absent(ask(deployment, 1))  # it is greeted again in the next round


@pytest.mark.parametrize("again", [True, False], ids=["final", "too large for the transport"])
def test_what_would_fail_again_is_not_asked_again(again: bool) -> None:
    deployment = deployed(federation())
    ask(deployment)

    def fatal(handle: Handle, parts: Parts) -> Arrivals:
        return [(0.0, error_reply(read_request(parts, LIMIT).header, "data changed", fatal=True))]

    broken = fatal if again else failure("sent more than it may", final=True)
    deployment.transport.faults["b"] = [broken] * 3
    assert list(absent(ask(deployment, 1))) == AT_B
    assert len(deployment.transport.faults["b"]) == 2


ODD_ANSWERS: dict[str, tuple[Callable[[Facts, Params], Any], dict[int, str]]] = {
    "other round": (
        lambda f, t: f.update(round=7),
        dict.fromkeys(AT_B, "answered 'train' in round 8, and was asked for 'train' in round 1"),
    ),
    "other work": (lambda f, t: f.update(work="score"), dict.fromkeys(AT_B, "answered 'score'")),
    "other setup": (lambda f, t: f.update(setup="0" * 64), dict.fromkeys(AT_B, "answered 'train'")),
    "a client that was not asked": (
        lambda f, t: f["answers"][0].update(number=0),
        {1: "sent no answer for it, but one for client 0, for which it was not asked"},
    ),
    "one answer missing": (
        lambda f, t: (f["answers"].pop(), [t.pop(n) for n in list(t) if n.startswith("2\n")]),
        {7: "site 'b': sent no answer for it"},
    ),
    "a malformed answer": (
        lambda f, t: f["answers"][1]["answer"].update(kind="gift"),
        {4: "site 'b': its site sent an answer of unknown kind 'gift'"},
    ),
}


@pytest.mark.parametrize("case", ODD_ANSWERS)
def test_odd_answers(case: str) -> None:
    change, expected = ODD_ANSWERS[case]
    deployment = deployed(federation())
    expected_uploads = uploads(ask(deployment))
    deployment.transport.faults["b"] = [changed(change)]
    answers = ask(deployment)
    reasons = absent(answers)
    assert list(reasons) == list(expected)
    assert all(expected[n] in reason for n, reason in reasons.items())
    assert all("site 'b'" in reason for reason in reasons.values())
    rest = {n: sha for n, sha in expected_uploads.items() if n not in expected}
    assert uploads(answers) == rest


@pytest.mark.parametrize(
    ("case", "change", "reason"),
    [
        ("NaN", lambda f, t: t["0\nuploads\nmodel\nhead.weight"].fill_(float("nan")), "not finite"),
        (
            "shape",
            lambda f, t: t.update({"0\nuploads\nmodel\nhead.weight": torch.ones(1)}),
            "expected torch.float64",
        ),
        ("names", lambda f, t: t.pop("0\nuploads\nmodel\nhead.weight"), "names differ"),
        ("identity", lambda f, t: f["answers"][0]["answer"].update(client=0), "claims to be"),
        ("samples", lambda f, t: f["answers"][0]["answer"].update(samples=10**9), "samples="),
    ],
)
def test_the_guard_names_what_a_site_made_up(case: str, change: Any, reason: str) -> None:
    """Well-formed but wrong: the round goes on without that client."""
    simulation = make_simulation(fedavg(), sampler=lambda *_: [0, 1], strict=False)
    deployment = deployed(simulation.federation)
    deployment.transport.faults["b"] = [late(0), late(0), changed(change)]
    at_sites = replace(simulation, engine=deployment.engine, guard=Guard(strict=False))
    state = init_state(at_sites, initial_model(simulation.federation.build))
    ((_, report),) = rounds(at_sites, state, MemoryStore(), 1)
    assert list(report.rejected) == [1]
    assert reason in report.rejected[1]
    assert report.skipped is None


def test_a_client_that_fails_at_its_site_is_named_with_it() -> None:
    deployment = deployed(federation())
    deployment.sites["b"].engine.run_client = lambda sent, task: Absent(task.number, "it failed")
    assert absent(ask(deployment)) == dict.fromkeys(AT_B, "site 'b': it failed")


def test_a_site_cannot_say_that_a_client_of_another_is_absent() -> None:
    deployment = deployed(federation())
    deployment.sites["b"].engine.run_client = lambda sent, task: Absent(0, "it failed")
    answers = ask(deployment)
    assert all(answers[number].client == number for number in AT_B)


# ------------------------------------------------------------------ time


def test_a_site_that_is_down_is_waited_for_once() -> None:
    deployment = deployed(federation(), patience=Patience(connect=30.0))
    deployment.transport.away["b"] = (0.0, 1000.0)
    assert absent(ask(deployment)) == dict.fromkeys(AT_B, "site 'b' is not connected")
    assert 30 <= deployment.time.now < 31
    assert list(absent(ask(deployment, 1))) == AT_B
    assert deployment.time.now < 31.5  # not again, until it has been back
    assert not any(site == "b" for site, _ in deployment.transport.pushed)
    deployment.time.now = 1000.0
    assert not absent(ask(deployment, 2))
    deployment.transport.away["b"] = (1000.0, 1010.0)
    assert not absent(ask(deployment, 3))  # it was waited for, and came back
    assert deployment.time.now >= 1010.0


def test_a_site_that_restarts_during_its_work_is_asked_again() -> None:
    deployment = deployed(federation())
    ask(deployment)
    deployment.transport.away["b"] = (deployment.time.now + 0.1, deployment.time.now + 20)
    unavailable = failure("did not report to the server")
    deployment.transport.faults["b"] = [
        lambda handle, parts: [(10.0, unavailable(handle, parts)[0][1])]
    ]
    assert not absent(ask(deployment, 1))
    assert 20 <= deployment.time.now < 30


def test_a_site_that_goes_away_after_a_fault_is_named_with_both() -> None:
    deployment = deployed(federation(), patience=Patience(connect=5.0))
    ask(deployment)
    start = deployment.time.now
    deployment.transport.away["b"] = (start + 2.5, 1000.0)
    unavailable = failure("lost its connection")
    deployment.transport.faults["b"] = [
        lambda handle, parts: [(3.0, unavailable(handle, parts)[0][1])]
    ]
    reason = "site 'b' is not connected; before, it lost its connection"
    assert absent(ask(deployment, 1)) == dict.fromkeys(AT_B, reason)
    assert 8 <= deployment.time.now - start < 9


def test_a_straggler_gets_the_time_of_all_its_clients_and_holds_up_nobody() -> None:
    deployment = deployed(federation(), patience=Patience(grace=5.0))
    ask(deployment)
    start = deployment.time.now
    deployment.transport.faults["b"] = [late(34.0), request_lost]  # 3 clients x 10 s + 5 s
    seen = []
    for number, _ in deployment.engine.map(training(deployment, 1), map(ClientTask, CLIENTS)):
        seen.append((number, deployment.time.now - start))
    assert all((when == 0.0) is (number not in AT_B) for number, when in seen)
    assert all(34.0 <= when < 35.0 for number, when in seen if number in AT_B)


def test_without_a_timeout_the_wait_still_ends() -> None:
    deployment = deployed(federation(), patience=Patience(work=100.0))
    ask(deployment)
    deployment.transport.faults["b"] = [request_lost] * 2
    reasons = absent(ask(deployment, 1, timeout=None))
    assert reasons == dict.fromkeys(AT_B, "site 'b' gave no answer within 100 s")
    assert 100 <= deployment.time.now < 101


def test_a_lost_request_is_repeated_after_half_of_the_time_with_the_same_id() -> None:
    deployment = deployed(federation())
    ask(deployment)
    deployment.transport.pushed.clear()
    deployment.transport.faults["b"] = [request_lost]
    assert not absent(ask(deployment, 1))
    assert 45 <= deployment.time.now < 46
    requests = [parts for site, parts in deployment.transport.pushed if site == "b"]
    assert len(requests) == 2
    assert requests[0] == requests[1]


def test_a_late_reply_to_the_first_push_counts_too() -> None:
    deployment = deployed(federation())
    ask(deployment)
    deployment.transport.faults["b"] = [late(50.0), late(80.0)]
    assert not absent(ask(deployment, 1))
    assert 50 <= deployment.time.now < 51


def test_replies_to_both_pushes_at_the_same_time_are_one_reply() -> None:
    deployment = deployed(federation(), patience=Patience(hello=60.0))
    deployment.transport.faults["b"] = [late(40.0), late(10.0)]  # pushed at 0 s and at 30 s
    assert not absent(ask(deployment))
    assert deployment.sites["b"].asked == [
        "HelloRequest",
        "HelloRequest",
        "SetupRequest",
        "WorkRequest",
    ]


def test_a_site_that_goes_away_twice_is_waited_for_twice() -> None:
    deployment = deployed(federation(), patience=Patience(connect=30.0))
    ask(deployment)
    start = deployment.time.now
    deployment.transport.away["b"] = (start, start + 10)

    def goes_away_again(handle: Handle, parts: Parts) -> Arrivals:
        now = deployment.time.now
        deployment.transport.away["b"] = (now + 24, now + 45)
        return [(25.0, Failure("lost its connection"))]

    deployment.transport.faults["b"] = [goes_away_again]
    assert not absent(ask(deployment, 1))
    assert 55 <= deployment.time.now - start < 60


def test_replies_of_an_earlier_round_are_ignored() -> None:
    deployment = deployed(federation())
    expected = {r: uploads(ask(deployment, r)) for r in range(3)}
    deployment.transport.faults["b"] = [late(100.0), late(91.0)]
    assert list(absent(ask(deployment, 1))) == AT_B
    deployment.time.now += 200  # now they are there
    assert uploads(ask(deployment, 2)) == expected[2]


def test_a_map_that_is_not_read_to_its_end_disturbs_no_later_one() -> None:
    deployment = deployed(federation())
    expected = uploads(ask(deployment, 1))
    next(iter(deployment.engine.map(training(deployment, 0), map(ClientTask, CLIENTS))))
    assert uploads(ask(deployment, 1)) == expected


# ------------------------------------------------------------------ hello and status


def test_say_hello() -> None:
    deployment = deployed(federation())
    deployment.transport.away["c"] = (0.0, 1000.0)
    deployment.transport.faults["b"] = [failure("is starting")]
    outcomes = dict(say_hello(deployment.engine.delivery, "run-1", "abc"))
    assert outcomes["a"] == {"site": "a"} and outcomes["b"] == {"site": "b"}
    assert isinstance(outcomes["c"], SiteProblem)
    assert str(outcomes["c"]) == "site 'c' is not connected"


@pytest.mark.parametrize("kind", ["setup", "unknown setup"])
def test_a_hello_that_is_answered_with_something_else(kind: str) -> None:
    deployment = deployed(federation())

    def fault(handle: Handle, parts: Parts) -> Arrivals:
        header = read_request(parts, LIMIT).header
        if kind == "setup":
            return [(0.0, setup_reply(header, DIGEST))]
        return [(0.0, unknown_setup_reply(type("W", (), {"header": header, "setup": DIGEST})()))]

    deployment.transport.faults["b"] = [fault]
    outcomes = dict(say_hello(deployment.engine.delivery, "run-1", "b"))
    assert "replied to the request 'hello' with something else" in str(outcomes["b"])


def test_a_setup_that_was_not_sent() -> None:
    deployment = deployed(federation())
    other = edit(lambda f: f.update(digest="1" * 64))
    deployment.transport.faults["b"] = [late(0), other]
    reason = "site 'b' accepted a setup that it was not sent"
    assert absent(ask(deployment)) == dict.fromkeys(AT_B, reason)


def test_the_status_of_every_site_is_told_when_it_changes() -> None:
    deployment = deployed(federation())
    deployment.transport.away["c"] = (0.0, 1000.0)
    ask(deployment, 4)
    statuses = deployment.changes[-1]
    assert statuses["a"].connected and statuses["a"].last_round == 5
    assert statuses["a"].last_seen == 0.0 and statuses["a"].problem is None
    assert not statuses["c"].connected and statuses["c"].last_seen is None
    assert statuses["c"].problem == "is not connected"
    assert deployment.engine.delivery.board.as_json()["c"] == {
        "connected": False,
        "last_seen": None,
        "last_round": None,
        "problem": "is not connected",
    }
    assert all(before != after for before, after in pairwise(deployment.changes))
