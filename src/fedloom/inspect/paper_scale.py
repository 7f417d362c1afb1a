"""The papers' tables at their own scale: every run checked without training, and its work counted.

A run is checked as far as it can be without its data: settings, names and arguments, whether the
method fits the model at the size of the paper's images, whether the cohort fits the clients, and
whether every column can be read off a run of this length. Counting its cost then runs two rounds of
the method on a toy federation (diagnostics/cost), mostly on the meta device.

The work of a run is that of its rounds and of the evaluations of the global model:

    rounds x clients per round x sum over phases of (samples of the phase x its MACs per sample)
    + evaluations x test samples x MACs of a forward pass

Not included: what follows the last round (fine-tuning and the like), personal models' scores, norms
and activations, augmentation, and the server. Runs of a table that differ only in what follows the
last round are counted once, since `fedloom reproduce` reuses their rounds.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import cast

import torch

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError, unknown_name
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.solver import Sgd
from fedloom.core.spec import Spec
from fedloom.data import listing
from fedloom.data.dataset import Dataset
from fedloom.diagnostics.cost.count import Cost, count_cost
from fedloom.diagnostics.cost.gpu import training_hours
from fedloom.diagnostics.cost.toy_federation import Workload
from fedloom.experiment.build import build_model
from fedloom.experiment.build_solver import build_solver
from fedloom.experiment.prepare import check_names, cohort_conflicts
from fedloom.experiment.reuse import leaves_rounds_unchanged, rounds_key
from fedloom.inspect.cost_tables import SampleShape
from fedloom.inspect.paper_data import PaperData, paper_data
from fedloom.methods import registry as methods
from fedloom.metrics.measures import check as check_measure
from fedloom.settings import presets
from fedloom.settings.config import Config, load
from fedloom.settings.paper_table import Column, Row, Table

FEDAVG = Spec("fedavg")
SEEDS = 3  # of the commands, as in most papers
DRAWS = 8  # steps to average over if a method draws; an estimate needs no more


@dataclass(frozen=True)
class TableWork:
    """A table at the paper's scale, for one seed.

    cells: those that can be measured. runs: trainings that they need. data: data sets.
    steps: gradient steps of all runs. macs: multiply-accumulates of training and evaluation.
    digest: of the settings of all runs; it changes with them.
    """

    table: str
    cells: int
    runs: int
    data: tuple[str, ...]
    steps: int
    macs: int
    digest: str

    @property
    def command(self) -> str:
        """What runs the table on a GPU, with the three seeds of most papers."""
        return f"fedloom reproduce {self.table} --scale paper --seeds {SEEDS} --device cuda"

    def hours(self, flops: float) -> float:
        """Of the command, with all its seeds, at this rate of FLOP/s."""
        return SEEDS * training_hours(self.macs, self.steps, flops)

    def describe(self) -> dict[str, object]:
        """As JSON."""
        return {**asdict(self), "data": list(self.data), "command": self.command}


def tables(name: str | None = None) -> list[Table]:
    """The papers' tables: all, those of a paper, or the one of that name."""
    every = {n: t for n in presets.names() if (t := presets.preset(n).table) is not None}
    papers = {table.partition("/")[0] for table in every}
    if name is None:
        return list(every.values())
    if name in papers:
        return [table for n, table in every.items() if n.startswith(f"{name}/")]
    if name not in every:
        raise unknown_name("table or paper", name, [*papers, *every], see="fedloom presets")
    return [every[name]]


def cells(table: Table) -> Iterator[tuple[Row, Column, Config]]:
    """Every cell that can be measured, with the settings of its runs."""
    chosen = table.at("paper")
    for row in chosen.rows:
        for column in chosen.columns:
            yield row, column, load(chosen.run_settings(row, column, "paper"))


def digest(table: Table) -> str:
    """A short hash of the settings of all cells, where they differ from the defaults."""
    settings = [c.model_dump(mode="json", exclude_defaults=True) for _, _, c in cells(table)]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def problems(table: Table) -> list[str]:
    """Why cells of the table could not run at the paper's scale; empty if all can."""
    found: list[str] = []
    for row, column, config in cells(table):
        try:
            check_measure(column.measure, config.rounds, config.evaluate.every)
            if column.runs_from == column.name:  # the others share these runs
                check_run(config)
        except UserError as error:
            found.append(f"{table.name}, row '{row.name}', column '{column.name}': {error}")
    return found


def check_run(config: Config) -> None:
    """Raise a UserError with what would stop this run, as far as it shows without its data."""
    method, facts = check_names(config), paper_data(config.data.name)
    if conflicts := cohort_conflicts(config, config.data.clients):
        raise UserError("; ".join(conflicts))
    if facts.client_samples(config.data) < 1:
        raise UserError(
            f"data.clients={config.data.clients} leaves the average client without a sample of "
            f"'{config.data.name}'; lower it"
        )
    chain = _model(config.model, facts, torch.device("meta"))
    method.check(method.reshaped(chain, Key.root(0)))


def data_problem(config: Config) -> str | None:
    """Why the data set of that name on this machine is not the paper's; None if it may be."""
    name, facts = config.data.name, paper_data(config.data.name)
    here = listing.describe(name)
    if facts.per_user is not None:
        found, needed, what = here["users"], config.data.clients or 0, "users"
    else:
        found, needed, what = here["train"], facts.train, "training samples"
    if found >= needed:
        return None
    hint = listing.ADD_HINT.replace("NAME", name)
    return f"data set '{name}' has {found:,} {what} here and needs {needed:,}; {hint}"


def _model(spec: Spec, facts: PaperData, device: torch.device) -> Chain:
    samples = cast(Dataset, SampleShape(facts.shape, range(facts.classes)))
    return build_model(spec, samples, Key.root(0), torch.float32, device)


class CostCounter:
    """Counts what methods cost on models; each combination once, since tables share many."""

    def __init__(self) -> None:
        self._known: dict[str, Cost] = {}

    def cost(self, method: Sequence[Spec], model: Spec, facts: PaperData) -> Cost:
        """The cost of one step of the method, per sample."""
        label = f"{'+'.join(map(str, method))} {model} {facts}"
        if label not in self._known:
            build = partial(_model, model, facts)
            workload = Workload(methods.build(method), build, facts.shape, facts.classes, batch=2)
            self._known[label] = count_cost(workload, DRAWS)
        return self._known[label]


def work(table: Table, counter: CostCounter) -> TableWork:
    """Count the work of a table whose cells are without problems."""
    every = [config for _, _, config in cells(table)]
    distinct = {rounds_key(config) or str(n): config for n, config in enumerate(every)}
    counted = [run_work(config, counter) for config in distinct.values()]
    return TableWork(
        table=table.name,
        cells=len(every),
        runs=len(distinct),
        data=tuple(sorted({config.data.name for config in every})),
        steps=round(sum(steps for steps, _ in counted)),
        macs=round(sum(macs for _, macs in counted)),
        digest=digest(table),
    )


def run_work(config: Config, counter: CostCounter) -> tuple[float, float]:
    """The gradient steps of a run, and its multiply-accumulates."""
    facts = paper_data(config.data.name)
    # what only follows the last round is not counted
    active = [spec for spec in config.method_specs if not leaves_rounds_unchanged(spec)]
    method = active or [FEDAVG]
    cost = counter.cost(method, config.model, facts)
    samples = facts.client_samples(config.data)
    per_client = _client_work(config, methods.build(method), cost, samples)
    clients = config.rounds * int(config.sample.args.get("per_round", config.data.clients))
    forward = counter.cost([FEDAVG], config.model, facts).forward_macs
    evaluations = math.ceil(config.rounds / config.evaluate.every)
    steps = clients * sum(steps for steps, _ in per_client)
    training = clients * sum(macs for _, macs in per_client)
    return steps, training + evaluations * facts.test * forward


def _client_work(
    config: Config, method: Method, cost: Cost, samples: float
) -> list[tuple[float, float]]:
    """For each phase of a client in a round: its steps and its multiply-accumulates."""
    result = []
    for phase, macs in zip(method.phases, cost.training_by_phase, strict=True):
        solver = phase.solver_for(build_solver(config.train, config.rounds))
        assert isinstance(solver, Sgd)
        if solver.steps is not None:
            steps: float = solver.steps
        else:
            steps = solver.epochs * samples / (solver.batch * solver.rule.batches)
        result.append((steps, steps * solver.batch * macs))
    return result
