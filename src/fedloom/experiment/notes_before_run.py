"""What a user should know about settings, method and model before round 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedloom.core.chain import Chain
from fedloom.core.method import Method
from fedloom.core.roles import Roles
from fedloom.core.select import nothing
from fedloom.experiment.build_solver import learning_rate_note
from fedloom.settings.train import TrainSettings


def notes_before_run(
    train: TrainSettings, method: Method, parts: Iterable[Method], model: Chain
) -> Iterator[str]:
    """Every note on a method and the model that it trains.

    parts: the methods that it is combined from; itself if it is not a combination.
    """
    yield from learning_rate_note(train, method)
    for part in parts:
        yield from _private_note(part, model)
    yield from _cut_note(method, model)


def _private_note(method: Method, model: Chain) -> Iterator[str]:
    """Whether a method that keeps tensors at the clients finds none of them in the model."""
    kept = method.private(model) - Roles.of(model).frozen
    if method.private is not nothing and not kept:
        yield (
            f"note: method '{method.name}' finds none of the layers that it keeps at the clients: "
            "all trained weights of this model are averaged. To keep layers of your own class, "
            'write a method fedloom.Method("NAME", private=fedloom.methods.of_type(CLASS))'
        )


def _cut_note(method: Method, model: Chain) -> Iterator[str]:
    if model.cut_at:
        yield (
            f"note: method '{method.name}' needs blocks, so the model was cut into "
            f"{', '.join(model.names)}; to cut it elsewhere, return "
            f"fedloom.cut(model, at={list(model.cut_at)}) with other modules"
        )
