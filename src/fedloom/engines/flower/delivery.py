"""Talks with several sites at a time: sends requests, polls for replies, repeats, gives up in time.

What is said to a site is a generator: it yields questions, is sent the reply to each, and returns
the result. Delivery knows nothing of what the messages mean:

    a reply comes           it is checked (checksum, size, form, and that it answers this very
                            request) and handed to the generator
    it cannot be used,      the request is sent once more, if the site is connected and there is
    or the transport        time; then the talk ends with a SiteProblem
    failed
    nothing comes           the request is sent once more after half of its time, for the case that
                            it was lost; whichever reply comes first counts
    time is up              the talk ends with a SiteProblem
    the site is away        it is waited for, but only if it was there when it was last asked

Replies to earlier requests are never pulled, and second replies are never looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from fedloom.core.errors import RunError
from fedloom.engines.flower.messages import (
    NO_HEADER,
    ErrorReply,
    Header,
    Parts,
    Reply,
    read_reply,
)
from fedloom.engines.flower.status import StatusBoard
from fedloom.engines.flower.transport import Failure, Transport
from fedloom.engines.wire import WireError

T = TypeVar("T")
PUSHES = 2  # times that a request is sent at most
LOOK_SECONDS = 2.0  # between two looks at which sites are connected
REPLY_LIMIT = 2**29  # bytes of a reply


@dataclass(frozen=True)
class Patience:
    """Seconds that are waited, for what.

    poll        between two looks for replies.
    connect     for a site that has just been there and is not connected now.
    hello       for the answer to a hello.
    setup       for a site to read its data and build the run.
    grace       for transport, in addition to guard.timeout for each client of a site.
    work        for a site's work if guard.timeout is not set.
    """

    poll: float = 0.2
    connect: float = 30.0
    hello: float = 60.0
    setup: float = 600.0
    grace: float = 60.0
    work: float = 3600.0

    def for_work(self, timeout: float | None, clients: int) -> float:
        """For the work of a site with this many clients."""
        return self.work if timeout is None else timeout * clients + self.grace


class SiteProblem(RunError):
    """Why a site gave no usable answer. problem: a phrase that follows its name."""

    def __init__(self, site: str, problem: str) -> None:
        self.site, self.problem = site, problem
        super().__init__(f"site '{site}' {problem}")


@dataclass(frozen=True)
class Question:
    """A request, and the seconds in which it must be answered."""

    header: Header
    parts: Parts
    seconds: float


Talk = Generator[Question, Reply, T]


@dataclass(eq=False)
class _Asked:
    """A question on its way.

    asked: when it was put. tickets: of the pushes that may still be answered. problem: what went
    wrong with the last push; hopeless: it would go wrong again. absent_since: when the site was
    first found missing.
    """

    question: Question
    asked: float
    tickets: set[str] = field(default_factory=set)
    pushes: int = 0
    problem: str | None = None
    hopeless: bool = False
    absent_since: float | None = None

    def after_earlier_problem(self, text: str) -> str:
        """The text, with what went wrong with an earlier push, if something did."""
        return f"{text}; before, it {self.problem}" if self.problem else text


class Delivery:
    """Runs talks over a transport. limit: bytes of a reply that are accepted."""

    def __init__(
        self,
        transport: Transport,
        board: StatusBoard,
        patience: Patience | None = None,
        limit: int = REPLY_LIMIT,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.transport, self.board, self.limit = transport, board, limit
        self.patience, self.clock, self.sleep = patience or Patience(), clock, sleep
        self.away = set[str]()  # sites that were waited for in vain, until they are back
        self._looked = -LOOK_SECONDS
        self._connected: Collection[str] = ()

    def run(self, talks: Mapping[str, Talk[T]]) -> Iterator[tuple[str, T | SiteProblem]]:
        """The result of the talk with every site, as soon as there is one."""
        open_talks, asked = dict(talks), dict[str, _Asked]()
        self._looked = self.clock() - LOOK_SECONDS
        for site, talk in talks.items():
            yield from self._continue(site, talk, None, asked)
        while asked:
            self._push_all(asked)
            replies = self._replies(asked)
            for site, reply in replies.items():
                del asked[site]
                yield from self._continue(site, open_talks[site], reply, asked)
            for site, problem in self._given_up(asked):
                del asked[site]
                yield from self._end(open_talks[site], problem)
            if asked and not replies:
                self.sleep(self.patience.poll)

    def _continue(
        self, site: str, talk: Talk[T], reply: Reply | None, asked: dict[str, _Asked]
    ) -> Iterator[tuple[str, T | SiteProblem]]:
        """Let a talk go on; its result if it has ended."""
        try:
            question = next(talk) if reply is None else talk.send(reply)
        except StopIteration as end:
            yield site, end.value
        except SiteProblem as problem:
            yield from self._end(talk, problem)
        else:
            asked[site] = _Asked(question, self.clock())

    def _end(self, talk: Talk[T], problem: SiteProblem) -> Iterator[tuple[str, SiteProblem]]:
        talk.close()
        self.board.failed(problem.site, problem.problem)
        yield problem.site, problem

    # -------------------------------------------------------------- sending

    def _push_all(self, asked: Mapping[str, _Asked]) -> None:
        """Send every question that is not on its way, or seems to be lost."""
        for site, item in asked.items():
            if self._is_due(item) and self._is_connected(site, item):
                self._push(site, item)

    def _is_due(self, item: _Asked) -> bool:
        if item.pushes >= PUSHES or item.hopeless:
            return False
        return not item.tickets or self.clock() >= item.asked + item.question.seconds / 2

    def _is_connected(self, site: str, item: _Asked) -> bool:
        now = self.clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked, self._connected = now, self.transport.connected()
            self.board.connected(self._connected)
            self.away -= set(self._connected)
        if site in self._connected:
            item.absent_since = None
            return True
        if item.absent_since is None:
            item.absent_since = now
        return False

    def _push(self, site: str, item: _Asked) -> None:
        left = item.asked + item.question.seconds - self.clock()
        ticket = self.transport.push(site, item.question.parts, max(left, 1.0))
        item.pushes += 1
        if isinstance(ticket, Failure):
            self._note(item, ticket)
        else:
            item.tickets.add(ticket)

    # -------------------------------------------------------------- receiving

    def _replies(self, asked: Mapping[str, _Asked]) -> dict[str, Reply]:
        """The usable replies that have arrived, one for each site."""
        owner = {ticket: site for site, item in asked.items() for ticket in item.tickets}
        usable: dict[str, Reply] = {}
        if not owner:
            return usable
        for ticket, content in self.transport.pull(list(owner)).items():
            if ticket not in owner:
                continue
            site, item = owner[ticket], asked[owner[ticket]]
            item.tickets.discard(ticket)
            reply = self._checked(site, item.question.header, content)
            if isinstance(reply, Failure):
                self._note(item, reply)
            else:
                self.board.replied(site)
                usable.setdefault(site, reply)  # both pushes may be answered at the same time
        return usable

    def _checked(self, site: str, header: Header, content: Parts | Failure) -> Reply | Failure:
        """The reply to the request with this header."""
        if isinstance(content, Failure):
            return content
        try:
            reply = read_reply(content, self.limit)
        except WireError as error:
            return Failure(f"sent {error}")
        if isinstance(reply, ErrorReply) and reply.header in (header, NO_HEADER):
            return Failure(f"reports: {reply.reason}", final=reply.fatal)
        if reply.header.site != header.site:
            return Failure(f"sent a reply in the name of site '{reply.header.site}'")
        if reply.header.run != header.run:
            return Failure(f"sent a reply that belongs to the run '{reply.header.run}'")
        if reply.header.request != header.request:
            return Failure("sent a reply to another request")
        return reply

    def _note(self, item: _Asked, failure: Failure) -> None:
        item.problem = failure.reason
        item.hopeless = item.hopeless or failure.final

    # -------------------------------------------------------------- giving up

    def _given_up(self, asked: Mapping[str, _Asked]) -> list[tuple[str, SiteProblem]]:
        """The sites whose question will not be answered any more, and why."""
        problems = ((site, self._problem(site, item)) for site, item in asked.items())
        return [(site, SiteProblem(site, text)) for site, text in problems if text is not None]

    def _problem(self, site: str, item: _Asked) -> str | None:
        if not item.tickets and (item.hopeless or item.pushes >= PUSHES):
            return item.problem
        if self._is_gone(site, item):
            self.away.add(site)
            return item.after_earlier_problem("is not connected")
        seconds = item.question.seconds
        if self.clock() < item.asked + seconds:
            return None
        return item.after_earlier_problem(f"gave no answer within {seconds:g} s")

    def _is_gone(self, site: str, item: _Asked) -> bool:
        """Whether a site that has nothing left to answer was waited for long enough."""
        if item.absent_since is None or item.tickets:
            return False
        patience = 0.0 if site in self.away else self.patience.connect
        return self.clock() >= item.absent_since + min(patience, item.question.seconds)
