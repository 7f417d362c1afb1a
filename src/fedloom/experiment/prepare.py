"""From settings to a run that is ready to begin.

`prepare` checks the names in the settings, loads and partitions the data, builds the method, the
model and the federation, and opens the engine, in this order. Every problem is reported before
round 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.errors import UserError, raise_all, shown, shown_text
from fedloom.core.exchange_before_run import notices
from fedloom.core.frozen_base import base_checksum
from fedloom.core.guard import Guard
from fedloom.core.identity import RunIdentity
from fedloom.core.method import Method
from fedloom.core.params import nbytes, select
from fedloom.core.roles import Roles
from fedloom.core.select import has_batch_statistics
from fedloom.core.simulation import Simulation
from fedloom.core.state import ServerState
from fedloom.core.state_check import Expected, state_problem
from fedloom.core.whole_number import whole_number
from fedloom.data import augment
from fedloom.data.client import Clients
from fedloom.data.dataset import Dataset
from fedloom.data.partition import check as check_partition
from fedloom.data.statistics import client_counts
from fedloom.engines import registry
from fedloom.engines.choose import EngineChoice
from fedloom.engines.malloc import blocks_returned, return_large_blocks
from fedloom.experiment.build import (
    NO_VALUES,
    Values,
    build_federation,
    build_metrics,
    build_sampler,
    check_model,
    load_data,
    named_data,
    partition_rows,
    resolve_device,
)
from fedloom.experiment.build_solver import training_conflicts
from fedloom.experiment.loss_checks import check_user_loss
from fedloom.experiment.memory_layout import check_compiler
from fedloom.experiment.metric_checks import check_user_metrics
from fedloom.experiment.model_checks import check_model_output, check_same_build
from fedloom.experiment.notes_before_run import notes_before_run
from fedloom.experiment.open_engine import open_engine
from fedloom.experiment.run_data import RemoteFederation, local_data
from fedloom.experiment.run_task import (
    check_data_settings,
    check_test_samples,
    loss_conflicts,
    task_with_loss,
)
from fedloom.methods.registry import build as build_method
from fedloom.methods.registry import build_parts, check_task
from fedloom.metrics.registry import Metric
from fedloom.runs.made_with import made_with
from fedloom.settings.config import Config, load

if TYPE_CHECKING:
    from fedloom.engines.forkserver import ForkServer
    from fedloom.engines.pool import Pool
    from fedloom.engines.ray import RayCluster


LARGE_MODEL_BYTES = 2**28


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to begin. Close it to end its workers.

    counts: training samples, clients by classes; a single column if samples have no class.
    identity: what the result will depend on besides the settings. notices: what the user must know
    before clients send anything but weights.
    metrics: what is computed of models besides their score, by name.
    """

    config: Config
    dataset: Dataset
    clients: Clients
    counts: Tensor
    model: Chain
    simulation: Simulation
    engine_choice: EngineChoice
    identity: RunIdentity
    notices: tuple[str, ...] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    def state_problem(self, state: ServerState) -> str | None:
        """Why a state cannot be one of this run, as a phrase; None if it can."""
        if state.round > self.config.rounds:
            return f"it is that of round {state.round}, and the run has {self.config.rounds}"
        expected = Expected.of(self.simulation.federation, self.model)
        return state_problem(state, expected)

    def close(self) -> None:
        self.simulation.engine.close()

    def __enter__(self) -> PreparedRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# not in the caller's mode: `with torch.no_grad(): run.model(x)` prepares the run at that moment
@torch.enable_grad()
@torch.inference_mode(False)
def prepare(
    config: Config,
    dataset: Dataset | None = None,
    pool: Pool | RayCluster | None = None,
    fork_server: ForkServer | None = None,
    values: Values = NO_VALUES,
    remote: RemoteFederation | None = None,
) -> PreparedRun:
    """Everything a run needs.

    dataset: used instead of the one that the settings name. pool, fork_server: reused instead of
    new ones. values: methods and models that were passed as Python objects. remote: clients whose
    data are not in this process.
    """
    method = check_names(config, values)
    with blocks_returned():
        data = local_data(config, dataset) if remote is None else remote.data
    dataset, clients = data.dataset, data.clients
    check_test_samples(config, len(dataset.test))
    identity = RunIdentity(made_with(), data.used, config.code())
    federation = build_federation(config, dataset, clients, values, method, data.own_test)
    model = check_model_output(federation, config.model, dataset, getattr(torch, config.dtype))
    check_user_loss(federation, model, config.loss)
    metrics = build_metrics(config, values)
    check_user_metrics(federation, model, metrics)
    if nbytes(model.state_dict()) >= LARGE_MODEL_BYTES:
        return_large_blocks()
    if user_code.is_reference(config.model.name):
        check_same_build(federation, config.model, model)
    raise_all(_conflicts(config, model, clients.sizes), "settings")
    method.check(model)
    parts = build_parts(config.method_specs, values)
    messages = (
        *notes_before_run(config.train, method, parts.values(), model),
        *notices(federation, config.rounds),
    )
    if remote is None:
        federation, engine, choice = open_engine(
            config, dataset, federation, clients, model, pool, fork_server, values
        )
    else:
        engine, choice = remote.engine, EngineChoice(remote.name)
    frozen = select(model.state_dict(), Roles.of(model).frozen)
    federation = replace(federation, frozen=frozenset(frozen), base=base_checksum(frozen))
    guard = Guard(**config.guard.model_dump())
    simulation = Simulation(federation, build_sampler(config.sample), engine, guard)
    return PreparedRun(
        config,
        dataset,
        clients,
        data.counts,
        model,
        simulation,
        choice,
        identity,
        messages,
        metrics,
    )


def checked_client(client: Any, count: int) -> int:
    """The number of a client; raises for one that a run of this many clients does not have."""
    number = whole_number(client)
    if number is None or not 0 <= number < count:
        raise UserError(
            f"client {shown(client)} is not one of the {count} clients; "
            f"choose a number from 0 to {count - 1}"
        )
    return number


def check_names(config: Config, values: Values = NO_VALUES) -> Method:
    """Check every name and argument in the settings without reading data; the method they describe.

    Raises all problems at once.
    """
    checks: list[Callable[[], Any]] = [
        lambda: _checked_method(config, values),
        lambda: check_model(config.model, values),
        lambda: check_partition(config.data.partition),
        lambda: check_data_settings(config),
        lambda: task_with_loss(config, values),
        lambda: augment.check(config.data.augment),
        lambda: build_sampler(config.sample),
        lambda: build_metrics(config, values),
        lambda: resolve_device(config.device),
        lambda: registry.check_available(config.engine),
        lambda: check_compiler(config.compile),
    ]
    results, problems = [], []
    for check in checks:
        try:
            results.append(check())
        except UserError as error:
            problems.append(str(error))
        except OSError as error:  # a file's name is too long, or its folder cannot be read
            file = shown_text(str(error.filename))
            problems.append(f"cannot use '{file}': {error.strerror}; give the path of another file")
    if problems:
        raise UserError("\n".join(problems))
    method: Method = results[0]
    conflicts = (*training_conflicts(config.train, method), *loss_conflicts(config, method))
    raise_all(conflicts, "settings")
    return method


def _checked_method(config: Config, values: Values) -> Method:
    """The method of the settings, if it is meant for the task."""
    method = build_method(config.method_specs, values)
    check_task(config.method_specs, config.task, values)
    return method


def partition_counts(raw: Mapping[str, Any]) -> tuple[Config, np.ndarray, tuple[str, ...]]:
    """The settings, their partition's counts, clients by classes, and the names of the classes.

    Neither the model nor the method is built, so no user code is executed.
    """
    config = load(raw)
    check_partition(config.data.partition)
    whole = named_data(config.data.name)
    if "task" not in raw:
        config = config.model_copy(update={"task": whole.task})
    check_data_settings(config)
    dataset = load_data(config, whole)
    rows = partition_rows(config, dataset)
    names = dataset.classes if dataset.task == "classification" else ("samples",)
    return config, client_counts(dataset, rows), names


def _conflicts(config: Config, model: Chain, sizes: np.ndarray) -> list[str]:
    """Settings that are valid alone but not together, or not with these clients and this model."""
    return [*cohort_conflicts(config, len(sizes)), *_batch_conflicts(config, model, sizes)]


def cohort_conflicts(config: Config, clients: int) -> list[str]:
    """Settings of the cohort that do not go together with this number of clients."""
    per_round, minimum = config.sample.args.get("per_round", 1), config.guard.min_replies
    problems = []
    if per_round > clients:
        problems.append(
            f"sample.per_round={per_round} is more than the {clients} clients; "
            "lower it or raise data.clients"
        )
    if minimum > min(per_round, clients) and config.sample.name != "all":
        problems.append(
            f"guard.min_replies={minimum} is more than the {per_round} clients per round; lower it"
        )
    return problems


def _batch_conflicts(config: Config, model: Chain, sizes: np.ndarray) -> list[str]:
    train, problems = config.train, []
    if has_batch_statistics(model) and not train.drop_last:
        single = np.flatnonzero(sizes < 2)
        if train.batch == 1:
            problems.append(
                "train.batch=1 gives batch norm a single sample; "
                "raise it, or use a model with norm='group'"
            )
        elif len(single):
            problems.append(
                f"client {single[0]} has 1 sample, and model '{config.model.name}' has batch norm, "
                "which needs at least 2; raise min_size in data.partition, "
                "or use a model with norm='group'"
            )
    if train.drop_last and (sizes < train.batch).all():
        problems.append(
            "train.drop_last=true leaves no batch: every client has fewer than "
            f"train.batch={train.batch} samples; lower train.batch"
        )
    return problems
