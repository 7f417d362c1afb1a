"""The ServerApp of a deployment: the ordinary round loop in an ordinary run folder, over a Grid.

Flower starts it in a process of its own, with the SuperLink's environment. It finds the server's
folder in a variable, the settings in the app's configuration, and which node is which site in the
roster. Its id of the run is the name of the run folder: Flower's changes with every submission, so
a run that was killed resumes under the same id.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError, UserError
from fedloom.deploy.app_files import RUN, SUBMISSION, read_settings
from fedloom.deploy.layout import ServerFolder, private_folder
from fedloom.deploy.run_control import RunControl, RunState, State
from fedloom.deploy.submit import check_run_name, control_of
from fedloom.deploy.variables import SERVER_FOLDER

# `app` is made when it is asked for, so that this module can be imported without Flower.
__all__ = ["app"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    from flwr.serverapp import ServerApp

    server_app = ServerApp()
    server_app.main()(main)
    globals()["app"] = server_app
    return server_app


def main(grid: Any, context: Any) -> None:
    """Train, and leave word of how it ended for `fedloom deploy run`."""
    folder = ServerFolder(Path(os.environ[SERVER_FOLDER]))
    run, submission = str(context.run_config[RUN]), str(context.run_config[SUBMISSION])
    check_run_name(run)
    control = control_of(folder, run)
    with control.held():
        control.begin(_state("waiting", submission))
        try:
            _train(grid, context.run_config, folder, run, control)
        except BaseException as error:
            control.write(_ending(error, submission))
            raise
        control.write(_state("finished", submission))


def _train(
    grid: Any,
    run_config: Mapping[str, Any],
    folder: ServerFolder,
    run: str,
    control: RunControl,
) -> None:
    from fedloom.deploy.federation import open_federation
    from fedloom.experiment.execute import execute

    config = read_settings(run_config)
    path = private_folder(folder.runs) / run
    federation = open_federation(grid, folder, config, path, control.say)
    state = control.read()
    assert state is not None
    control.write(_state("running", state.submission))
    execute(
        config,
        path,
        remote=federation.remote,
        callbacks=federation.callbacks,
        stop=control.should_stop,
        warn=control.say,
    )


def _state(state: State, submission: str, message: str = "", exit_code: int = 0) -> RunState:
    return RunState(state, os.getpid(), submission, message, exit_code)


def _ending(error: BaseException, submission: str) -> RunState:
    """How a run ended that did not reach its last round, with the exit code of the commands."""
    from fedloom.experiment.train import Interrupted

    if isinstance(error, Interrupted):
        return _state("stopped", submission, str(error), 130)
    if isinstance(error, UserError):
        return _state("failed", submission, str(error), 2)
    if isinstance(error, (RunError, OSError)):
        return _state("failed", submission, str(error), 1)
    if not isinstance(error, Exception):  # Flower was told to end it
        return _state("stopped", submission, "the server ended the run after its last round", 130)
    trace = "".join(traceback.format_exception_only(error)).strip()
    return _state("failed", submission, f"an error in fedloom: {trace}", 1)
