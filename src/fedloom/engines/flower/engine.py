"""The engine that runs clients at real sites: one message for each site, whatever the transport.

A site that fails in any way makes its clients Absent, with its name and the reason; the round goes
on without them. The engine itself never fails for a site.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from fedloom.core.errors import shortened
from fedloom.core.request import Broadcast, EvaluationTask, Task
from fedloom.core.server import Absent
from fedloom.core.simulation import Engine
from fedloom.engines.flower.delivery import Delivery, Question, SiteProblem, Talk
from fedloom.engines.flower.messages import (
    AnswersReply,
    Header,
    HelloReply,
    Reply,
    SetupReply,
    UnknownSetupReply,
    broadcast_part,
    hello_request,
    setup_request,
    work_request,
)
from fedloom.engines.wire import Facts

CheckReport = Callable[[str, Facts], str | None]


@dataclass(frozen=True)
class Setup:
    """What was agreed for a run, and the clients that each site has.

    run: id of the run. agreement: as JSON; digest: its sha256.
    """

    run: str
    digest: str
    agreement: Mapping[str, Any]
    clients: Mapping[str, Sequence[int]]


class Requests:
    """Makes questions to sites, each with an id of its own that no other process uses."""

    def __init__(self, run: str, delivery: Delivery) -> None:
        self.run, self.patience = run, delivery.patience
        self._session, self._numbers = secrets.token_hex(8), count()

    def header(self, site: str) -> Header:
        return Header(f"{self._session}-{next(self._numbers)}", self.run, site)

    def hello(self, site: str) -> Question:
        header = self.header(site)
        return Question(header, hello_request(header), self.patience.hello)

    def setup(self, site: str, setup: Setup) -> Question:
        header = self.header(site)
        parts = setup_request(header, setup.digest, setup.agreement)
        return Question(header, parts, self.patience.setup)


def say_hello(
    delivery: Delivery, run: str, sites: Iterable[str]
) -> Iterator[tuple[str, Facts | SiteProblem]]:
    """What every site reports of itself, or why it does not, in the order of their answers."""
    requests = Requests(run, delivery)

    def talk(site: str) -> Talk[Facts]:
        return _report(site, (yield requests.hello(site)))

    yield from delivery.run({site: talk(site) for site in sites})


def _report(site: str, reply: Reply) -> Facts:
    if not isinstance(reply, HelloReply):
        raise SiteProblem(site, _wrong_kind("hello", reply))
    return reply.report


class FlowerEngine:
    """Runs clients at the sites of a deployment.

    local          evaluates the server's model, if the server has test data.
    check_report   takes a site's name and its report, and says what does not fit the agreement.
    oldest         the oldest round that the server may go back to; sites forget earlier memories.
    """

    def __init__(
        self,
        delivery: Delivery,
        setup: Setup,
        local: Engine | None = None,
        check_report: CheckReport = lambda site, report: None,
    ) -> None:
        self.delivery, self.setup, self.local = delivery, setup, local
        self.check_report = check_report
        self.oldest: int | None = None
        self.requests = Requests(setup.run, delivery)
        self.site_of = {c: site for site, clients in setup.clients.items() for c in clients}
        self.introduced = set[str]()  # sites that were greeted by this process

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        listed = list(tasks)
        if self.local is not None and any(isinstance(task, EvaluationTask) for task in listed):
            yield from self.local.map(sent, listed)
            return
        by_site: dict[str, list[Task]] = {}
        for task in listed:
            if task.number in self.site_of:
                by_site.setdefault(self.site_of[task.number], []).append(task)
            else:
                yield task.number, Absent(task.number, f"no site has client {task.number}")
        part = broadcast_part(sent)
        talks = {site: self._talk(site, sent, part, own) for site, own in by_site.items()}
        for site, outcome in self.delivery.run(talks):
            yield from self._answers(site, by_site[site], outcome)

    def close(self) -> None:
        """Close the transport and the local engine."""
        if self.local is not None:
            self.local.close()
        self.delivery.transport.close()

    # -------------------------------------------------------------- what is said to a site

    def _talk(
        self, site: str, sent: Broadcast, part: bytes, tasks: Sequence[Task]
    ) -> Talk[AnswersReply]:
        if site not in self.introduced:
            yield from self._introduce(site)
        reply = yield self._work(site, sent, part, tasks)
        if isinstance(reply, UnknownSetupReply):  # it has lost what it was told: tell it again
            yield from self._introduce(site)
            reply = yield self._work(site, sent, part, tasks)
        if not isinstance(reply, AnswersReply):
            raise SiteProblem(site, _wrong_kind("work", reply))
        if (reply.setup, reply.work, reply.round) != (self.setup.digest, sent.work, sent.round):
            answered = f"'{reply.work}' in round {reply.round + 1}"
            asked = f"'{sent.work}' in round {sent.round + 1}"
            raise SiteProblem(site, f"answered {answered}, and was asked for {asked}")
        self.delivery.board.answered(site, sent.round)
        return reply

    def _introduce(self, site: str) -> Talk[None]:
        self.introduced.discard(site)
        report = _report(site, (yield self.requests.hello(site)))
        problem = self.check_report(site, report)
        if problem is not None:
            raise SiteProblem(site, problem)
        reply = yield self.requests.setup(site, self.setup)
        if not isinstance(reply, SetupReply):
            raise SiteProblem(site, _wrong_kind("setup", reply))
        if reply.digest != self.setup.digest:
            raise SiteProblem(site, "accepted a setup that it was not sent")
        self.introduced.add(site)

    def _work(self, site: str, sent: Broadcast, part: bytes, tasks: Sequence[Task]) -> Question:
        header = self.requests.header(site)
        parts = work_request(header, self.setup.digest, part, tasks, self.oldest)
        seconds = self.delivery.patience.for_work(sent.timeout, len(tasks))
        return Question(header, parts, seconds)

    # -------------------------------------------------------------- what becomes of its answers

    def _answers(
        self, site: str, tasks: Sequence[Task], outcome: AnswersReply | SiteProblem
    ) -> Iterator[tuple[int, Any]]:
        if isinstance(outcome, SiteProblem):
            reason = shortened(str(outcome))
            yield from ((task.number, Absent(task.number, reason)) for task in tasks)
            return
        missing = "sent no answer for it"
        others = sorted(outcome.answers.keys() - {task.number for task in tasks})
        if others:
            missing += f", but one for client {others[0]}, for which it was not asked"
            self.delivery.board.failed(site, f"answered for clients it was not asked for: {others}")
        for task in tasks:
            answer = outcome.answers.get(task.number, Absent(task.number, missing))
            yield task.number, _named(site, task.number, answer)


def _named(site: str, number: int, answer: Any) -> Any:
    """The answer; the reason of an Absent with the name of the site."""
    if not isinstance(answer, Absent):
        return answer
    return replace(answer, client=number, reason=shortened(f"site '{site}': {answer.reason}"))


def _wrong_kind(asked: str, reply: Reply) -> str:
    kind = type(reply).__name__.removesuffix("Reply")
    return f"replied to the request '{asked}' with something else ({kind})"
