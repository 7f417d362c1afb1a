"""Messages of pool workers, mutated: each is an answer that the server can use, or is rejected.

A message goes the way of a real one: through a pipe, the handle of a worker, its outbox in shared
memory, and the checks of a round. A client may lie about its loss or its update within the bounds,
so an answer that was changed into another valid one is accepted. Silently wrong is one that passes
although it breaks a rule: not finite, another shape, a larger weight, the name of another client.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Pipe
from typing import Any

import torch

from fedloom.core.client_error import ClientError
from fedloom.core.evaluate import ClassCounts, Evaluation, evaluation_problem
from fedloom.core.learning_task import CLASSIFICATION
from fedloom.core.request import ClientTask
from fedloom.core.round_report import mean_loss
from fedloom.core.server import Absent, Reply
from fedloom.core.tensor_checks import type_problem
from fedloom.core.valid_replies import ValidReplies
from fedloom.engines.arena import Arena
from fedloom.engines.wire import pack
from fedloom.engines.worker_handle import WorkerHandle
from trust import mutations
from trust.outcomes import ACCEPTED, REJECTED, WRONG, Outcomes, judged

CLIENT, SAMPLES, CLASSES = 3, 40, 5
MODEL = {"layer.weight": torch.ones(4, 6), "layer.bias": torch.zeros(4)}
VALID = ValidReplies(
    uploads={"model": MODEL, "control": MODEL},
    slots={"own": MODEL},
    sizes=[SAMPLES] * 8,
    weights=MODEL.keys(),
    max_norm=100.0,
)
REPLY = Reply(CLIENT, SAMPLES, 32, {"model": MODEL, "control": MODEL}, {"own": MODEL}, 0.25, 7)
ERROR = ClientError(CLIENT, 2, 0, 5, [[4, 3], [4]], "ArithmeticError: broken")
COUNTS = ClassCounts(torch.arange(5.0).double(), torch.full((5,), 9.0).double(), 1.5)
SCORES = Evaluation(COUNTS, 45.0, {"auroc": 0.75})
ABSENT = Absent(CLIENT, "late")
ANSWERS = (REPLY, REPLY, ERROR.absent(), ABSENT, SCORES, MODEL, {"means": MODEL})
ODD = (
    None, True, -1, 0, 7, 10**8, 10**400, 2**63, 0.5, math.nan, math.inf, "", "7", "reply", "a\nb",
    [], [1], ["model"], {}, {"a": 1}, [[]], "evaluation", "params", "groups", "absent",
)  # fmt: skip


def attack(count: int, seed: int) -> Outcomes:
    """Mutate this many messages and count what becomes of them."""
    outcomes: Outcomes = Counter()
    with _worker() as (handle, connection):
        for case in range(count):
            rng = random.Random(f"{seed} {case}")
            answer = rng.choice(ANSWERS)
            message = _mutated(rng, _message(handle, answer))
            handle.tasks = deque([ClientTask(CLIENT)])
            connection.send_bytes(message)
            what = f"seed {seed}, case {case}: {message[:200]!r}"
            outcomes[judged(what, lambda: _used(handle))] += 1
    return outcomes


@contextmanager
def _worker() -> Iterator[tuple[WorkerHandle, Any]]:
    """The handle of a worker that has no process: this one plays it."""
    handle = WorkerHandle.__new__(WorkerHandle)
    handle.connection, theirs = Pipe()
    handle.outboxes = [Arena(), Arena()]
    handle.since, handle.recipe, handle.built = 0.0, 1, 1
    with handle.connection, theirs:
        yield handle, theirs
    for arena in handle.outboxes:
        arena.close()


def _message(handle: WorkerHandle, answer: Any) -> bytes:
    packed = pack(answer)
    layout = handle.outboxes[1].write(packed.tensors)
    return json.dumps(packed.facts | {"box": 1, "layout": layout}).encode()


def _mutated(rng: random.Random, message: bytes) -> bytes:
    if rng.random() < 0.4:
        return rng.choice(BYTES)(rng, message)
    facts = json.loads(message)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _mutate_facts(rng, facts)
    return json.dumps(facts).encode()


BYTES: list[Callable[[random.Random, bytes], bytes]] = [
    mutations.flip_bits,
    mutations.cut,
    mutations.extend,
    mutations.remove,
    mutations.duplicate,
]


def _mutate_facts(rng: random.Random, facts: Any) -> None:
    """Change, drop or add one value, at any depth."""
    at = facts
    while isinstance(at, dict) and at:
        key = rng.choice(list(at))
        below = at[key]
        if isinstance(below, dict) and below and rng.random() < 0.7:
            at = below
        elif isinstance(below, list) and below and rng.random() < 0.4:
            below[rng.randrange(len(below))] = copy.deepcopy(rng.choice(ODD))
            return
        else:
            break
    else:
        return
    how = rng.random()
    if how < 0.15:
        del at[key]
    elif how < 0.3:
        at[rng.choice(("built", "build_error", "extra", "kind", key + "x"))] = copy.deepcopy(
            rng.choice(ODD)
        )
    else:
        at[key] = copy.deepcopy(rng.choice(ODD))


def _used(handle: WorkerHandle) -> str:
    """What the server makes of the message; raises our error if it is not an answer."""
    answered = handle.answer()
    if answered is None:
        return ACCEPTED  # "I have built recipe N"
    client, answer = answered
    if isinstance(answer, Evaluation):
        problem = evaluation_problem(answer, CLASSIFICATION, CLASSES, ["auroc"], predicted=False)
        return ACCEPTED if problem is None else REJECTED
    if isinstance(answer, dict):
        return ACCEPTED if type_problem(answer) is None else REJECTED
    valid, rejected = VALID.split([(client, answer)], [CLIENT])
    if not valid:
        assert all(isinstance(why, str) for why in rejected.values())
        return REJECTED
    mean_loss(valid)  # what the report of the round computes from it
    return ACCEPTED if _is_sound(valid[0]) else WRONG


def _is_sound(reply: Reply) -> bool:
    """The rules of a reply once more, written independently of the guard."""
    groups = [*reply.uploads.values(), *reply.memories.values()]
    tensors = [t for group in groups for t in group.values()]
    return (
        reply.client == CLIENT
        and 0 < reply.samples <= SAMPLES
        and 0 < reply.seen <= SAMPLES
        and list(reply.uploads) == ["model", "control"]
        and all(
            upload.keys() == MODEL.keys() and all(upload[n].shape == MODEL[n].shape for n in MODEL)
            for upload in reply.uploads.values()
        )
        and all(bool(torch.isfinite(t).all()) and float(t.abs().max()) < 100 for t in tensors)
    )
