"""The solver of a run from its settings, and which of them a method would not use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fedloom.core.errors import UserError
from fedloom.core.method import Method
from fedloom.core.optimisers import AdamRule, DecayGroups, SGDRule, SharpnessAware
from fedloom.core.rule import Rule
from fedloom.core.select import decayed
from fedloom.core.solver import Schedule, Sgd
from fedloom.settings.fields import Settings
from fedloom.settings.train import OF_ADAM, OF_SGD, TrainSettings, assignment, given

# The settings that make up a solver's rule.
OF_RULE = ("optimiser", *OF_SGD, *OF_ADAM, "weight_decay", "decay_norms", "sam", "reset")
OWN_LEARNING_RATES = "set the learning rates among its own parameters (see: fedloom methods)"


def build_solver(train: TrainSettings, rounds: int) -> Sgd:
    """The solver of the run."""
    plain = train.model_dump(
        include={"lr", "batch", "epochs", "steps", "clip", "drop_last", "reset"}
    )
    schedule = Schedule(**train.schedule.model_dump(), over=rounds)
    return Sgd(**plain, rule=build_rule(train), schedule=schedule)


def build_rule(train: TrainSettings) -> Rule:
    """The optimiser, with its parameter groups and SAM if the settings ask for them."""
    rule = _optimiser(train, train.weight_decay)
    if not train.decay_norms:
        rule = DecayGroups(rule, _optimiser(train, weight_decay=0.0), decayed)
    return SharpnessAware(rule, train.sam) if train.sam else rule


def _optimiser(train: TrainSettings, weight_decay: float) -> Rule:
    if train.optimiser == "sgd":
        return SGDRule(train.momentum, train.nesterov, weight_decay)
    decoupled = train.optimiser == "adamw"
    return AdamRule(train.betas, train.eps, weight_decay, decoupled, train.amsgrad)


def training_conflicts(train: TrainSettings, method: Method) -> Iterator[str]:
    """Settings of local training that this method does not use, or cannot work with."""
    run = build_solver(train, rounds=1)
    solvers = [phase.solver_for(run) for phase in (*method.phases, *method.finale)]
    own = [solver for solver in solvers if isinstance(solver, Sgd)]
    if not any(solver.rule is run.rule for solver in own):
        yield from _unused(method, train, OF_RULE)
    if not any(solver.schedule is run.schedule for solver in own):
        yield from _unused(method, train.schedule, ("kind",), "train.schedule.")
    if method.uses_lr_sum and any(math.isnan(solver.rule.effective_steps(1)) for solver in own):
        yield (
            f"method '{method.name}' computes a mean gradient from how far the weights have moved, "
            f"which does not work with train.optimiser={train.optimiser}, whose steps are not "
            "proportional to gradients; set train.optimiser=sgd"
        )


def uses_learning_rate(train: TrainSettings, method: Method) -> bool:
    """Whether a phase of the method would train otherwise with another train.lr."""
    run = build_solver(train, rounds=1)
    faster = replace(run, lr=2 * run.lr)
    phases = (*method.phases, *method.finale)
    return any(phase.solver_for(run) != phase.solver_for(faster) for phase in phases)


def learning_rate_note(train: TrainSettings, method: Method) -> Iterator[str]:
    """What to tell a user whose train.lr changes nothing.

    No error: presets and comparisons have one train.lr for many methods.
    """
    if given(train, ("lr",)) and not uses_learning_rate(train, method):
        yield (
            f"note: method '{method.name}' does not use train.lr={train.lr:g}; {OWN_LEARNING_RATES}"
        )


def check_varied(settings: Iterable[str], train: TrainSettings, method: Method) -> None:
    """Raise if one of the settings that a sweep varies changes nothing for the method."""
    if "train.lr" in settings and not uses_learning_rate(train, method):
        raise UserError(
            f"method '{method.name}' does not use train.lr, so all its values would give the same "
            f"run; {OWN_LEARNING_RATES}"
        )


def _unused(
    method: Method, table: Settings, names: Sequence[str], prefix: str = "train."
) -> Iterator[str]:
    """A message if settings of a table, which the method does not use, are not at their default."""
    changed = given(table, names)
    if changed:
        values, defaults = (
            ", ".join(f"{prefix}{assignment(of, name)}" for name in changed)
            for of in (table, type(table)())
        )
        yield (
            f"method '{method.name}' makes steps of its own and would not use {values}; "
            f"set {defaults}, and see the parameters of the method"
        )
