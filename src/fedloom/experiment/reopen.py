"""A run opened at its last checkpoint, to look at its models; nothing is trained or written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedloom.core.chain import Chain
from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import UserError
from fedloom.core.evaluate import Evaluation, evaluate_model
from fedloom.core.federation import Batches
from fedloom.core.job import build_isolated
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.state import ClientStore, ServerState
from fedloom.data.dataset import Dataset
from fedloom.experiment.build import NO_VALUES, Values, resolve_device
from fedloom.experiment.identity import check_same_data
from fedloom.experiment.prepare import PreparedRun, checked_client, prepare
from fedloom.runs.folder import RunFolder
from fedloom.runs.folder_layout import CONFIG
from fedloom.settings.config import load_file

REMEDY = "put the earlier data back to look at its models"


@dataclass(frozen=True)
class ReopenedRun:
    """A run at a checkpoint, prepared in this process: its models can be built and scored."""

    prepared: PreparedRun
    state: ServerState
    store: ClientStore

    @property
    def round(self) -> int:
        """The round to replay, counted from 0: the next one, or the last one of a finished run."""
        return min(self.state.round, self.prepared.config.rounds - 1)

    @property
    def personalised(self) -> bool:
        """Whether the method gives every client a model of its own."""
        return self.prepared.simulation.federation.method.personal

    def client_weights(self, client: int) -> Params:
        """What the client ends with; the global weights if the method does not personalise.

        No run stores the clients' final models: they are computed again, with the keys of the run.
        """
        client = checked_client(client, len(self.prepared.clients))
        if not self.personalised:
            return self.state.params
        state = self.state
        broadcast = Broadcast("personalise", state.round, state.params, state.shared)
        task = ClientTask(client, self.store.recall(client))
        with one_thread(), deterministic(resolve_device(self.prepared.config.device)):
            weights = self.prepared.simulation.answer(broadcast, task)
        return {name: weights.get(name, own) for name, own in state.params.items()}

    def model(self, weights: Params) -> Chain:
        """A new model with these weights, in evaluation mode."""
        chain = build_isolated(self.prepared.simulation.federation.build)
        chain.load_state_dict(weights)
        return chain.eval()

    def evaluation(self, weights: Params) -> Evaluation:
        """These weights on all test data, with the metrics of the run."""
        federation = self.prepared.simulation.federation
        found = self._evaluated(self.model(weights), federation.test)
        return found.with_metrics(federation.metrics)

    def evaluation_in_run(self, weights: Params, client: int | None) -> Evaluation | None:
        """These weights as the run has scored them, if not on all test data; else None.

        With evaluate.on="own" it uses the test samples of the client, or, for the global model with
        client=None, those of one client after the other.
        """
        federation = self.prepared.simulation.federation
        if federation.own_test is None:
            return None
        chain, own = self.model(weights), federation.own_test
        parts = own if client is None else [own[client]]
        whole = Evaluation.total([self._evaluated(chain, batches) for batches in parts])
        return whole.with_metrics(federation.metrics)

    def _evaluated(self, chain: Chain, batches: Batches) -> Evaluation:
        """A model on some test data, with the predictions that metrics need."""
        federation = self.prepared.simulation.federation
        keep = bool(federation.metrics)
        return evaluate_model(chain, batches, federation.classes, federation.task, keep)


@contextmanager
def reopened(
    path: Path,
    warn: Callable[[str], None],
    dataset: Dataset | None = None,
    values: Values = NO_VALUES,
) -> Iterator[ReopenedRun]:
    """The run in a folder, which another process may be training; warn gets what users should know.

    dataset, values: what the run was given as Python objects.
    """
    with RunFolder.read_only(path) as folder:
        folder.check_config()
    config = load_file(path / CONFIG).model_copy(update={"engine": "inprocess"})
    with (
        RunFolder.read_only(path, resolve_device(config.device)) as folder,
        prepare(config, dataset, values=values) as prepared,
    ):
        restored = folder.restore(prepared.state_problem)
        if restored is None:
            raise UserError(
                f"{path} has no checkpoint yet, so it has no model; "
                f"train it with `fedloom resume {path}`"
            )
        check_same_data(str(path), restored.manifest.identity, prepared.identity.data, REMEDY)
        for warning in restored.notes_on(prepared.identity):
            warn(f"note: {warning}")
        if restored.state.round < config.rounds:
            warn(
                "note: the run is unfinished; this is its model after "
                f"round {restored.state.round} of {config.rounds}"
            )
        yield ReopenedRun(prepared, restored.state, folder.store)
