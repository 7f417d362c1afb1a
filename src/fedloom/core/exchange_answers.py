"""Answers to exchanges: which of them are valid, and how they are pooled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedloom.core.errors import RunError, shortened
from fedloom.core.key import Key
from fedloom.core.method import Exchange
from fedloom.core.params import Params, nbytes
from fedloom.core.server import Absent
from fedloom.core.tensor_checks import first_not_finite, type_problem

Reject = Callable[[int, str], object]  # takes a client whose answer is left out, and the reason
Answers = Mapping[int, Mapping[str, Params]]  # by client, then by name of the exchange


class NoValidAnswer(RunError):
    """No client gave a valid answer to an exchange. rejected: why not, by client."""

    def __init__(self, exchange: str, rejected: Mapping[int, str]) -> None:
        self.rejected = rejected
        client, problem = next(iter(rejected.items()))
        super().__init__(
            f"every answer to the exchange '{exchange}' is invalid "
            f"(client {client}: {problem}); check the clients' data"
        )


def usable_answers(
    exchanges: Sequence[Exchange], answers: Mapping[int, Any], reject: Reject
) -> Answers:
    """The answers that are tensors by name for every exchange, in client order.

    The others, and clients that gave no answer, go to `reject`. Raises NoValidAnswer if there is
    no usable answer.
    """
    usable, rejected = {}, {}
    for client, answer in sorted(answers.items()):
        problem = _unusable(exchanges, answer)
        if problem is None:
            usable[client] = answer
        else:
            rejected[client] = shortened(problem)
    if not usable:
        raise NoValidAnswer(exchanges[0].name, rejected)
    for client, problem in rejected.items():
        reject(client, f"client {client} is left out of the exchange: {problem}")
    return usable


def _unusable(exchanges: Sequence[Exchange], answer: Any) -> str | None:
    if isinstance(answer, Absent):
        return answer.reason
    if not isinstance(answer, Mapping):
        return f"it sent a {type(answer).__name__}, not answers by name"
    for exchange in exchanges:
        problem = type_problem(answer.get(exchange.name))
        if problem is not None:
            return f"its answer to '{exchange.name}': {problem}"
    return None


def pool_answers(
    exchanges: Sequence[Exchange], answers: Answers, key: Key, reject: Reject
) -> dict[str, Params]:
    """The pooled valid answers to each exchange, by its name."""
    pooled = {}
    for exchange in exchanges:
        of_exchange = {client: answer[exchange.name] for client, answer in answers.items()}
        valid = valid_answers(exchange, of_exchange, reject)
        pooled[exchange.name] = exchange.server(valid, key.fold(exchange.name))
    return pooled


def valid_answers(
    exchange: Exchange, answers: Mapping[int, Params], reject: Reject
) -> list[Params]:
    """The answers that can be pooled, in client order; the others go to `reject`.

    An answer is valid if it has the names, types and shapes of most answers, is finite, and passes
    the exchange's own check. Raises NoValidAnswer if none is valid.
    """
    forms = {client: _form(answer) for client, answer in answers.items()}
    usual = Counter(forms.values()).most_common(1)[0][0]
    rejected: dict[int, str] = {}
    for client, answer in answers.items():
        problem = _answer_problem(exchange, client, answer, forms[client] == usual)
        if problem is not None:
            rejected[client] = problem
    if len(rejected) == len(answers):
        raise NoValidAnswer(exchange.name, rejected)
    for client, problem in rejected.items():
        what = f"the answer of client {client} to the exchange '{exchange.name}'"
        reject(client, f"{what} is left out: {problem}")
    return [answer for client, answer in answers.items() if client not in rejected]


def _form(answer: Params) -> tuple[Any, ...]:
    """Names, types and shapes of the tensors; the number of rows may differ between clients."""
    return tuple(
        sorted((name, str(t.dtype), t.dim(), tuple(t.shape[1:])) for name, t in answer.items())
    )


def _answer_problem(
    exchange: Exchange, client: int, answer: Params, has_usual_form: bool
) -> str | None:
    if not has_usual_form:
        form = list(_form(answer))
        return f"its tensors {form} differ from most answers in names, types or shapes"
    if (name := first_not_finite(answer)) is not None:
        return f"tensor '{name}' is not finite"
    return exchange.check(client, answer)


def total_bytes(answers: Answers) -> int:
    """Bytes on the wire of all these answers."""
    return sum(nbytes(params) for answer in answers.values() for params in answer.values())
