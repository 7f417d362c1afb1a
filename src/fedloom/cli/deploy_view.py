"""What the commands of a deployment show: rounds while they are trained, the result, the status."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedloom.cli.output import facts, out, say, table
from fedloom.core.errors import RunError, UserError

if TYPE_CHECKING:
    from fedloom.deploy.layout import ServerFolder
    from fedloom.deploy.run_control import RunState
    from fedloom.deploy.status import DeploymentStatus
    from fedloom.settings.config import Config


def show_status(now: DeploymentStatus, address: str) -> None:
    """Print the status of a deployment and of its sites."""
    shown = {
        "server": f"{'answers' if now.server else 'does not answer'} ({address})",
        "run": f"{now.run}: {now.state or 'not started'}",
        "round": f"{now.round} of {now.rounds}" if now.rounds else "-",
    }
    out.print(facts(shown))
    rows = [
        [
            line.site,
            "connected" if line.connected else "not connected",
            "never" if line.seen is None else f"{line.seen:.0f} s ago",
            "" if line.round is None else str(line.round),
            line.problem or "",
        ]
        for line in now.sites
    ]
    out.print(table(["site", "", "last seen", "last round", "problem"], rows))


def run_trial(
    folder: Path,
    settings: Config,
    sources: Mapping[str, Path],
    reader: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Train on a deployment of this machine, print the result, and compare the weights."""
    from fedloom.deploy.trial import repeat_in_process, running, set_up

    server = set_up(folder, settings, sources, reader)
    say(f"starting a server and {len(sources)} sites: {', '.join(sources)}")
    with running(server, sources, say) as look:
        say("all are running; handing the run to Flower")
        end(follow(server, server.name, look), f"fedloom deploy run {folder}")
        say("stopping the server and the sites")
    run = server.runs / server.name
    show_result(run, as_json)
    here, there = repeat_in_process(run, sources, reader), weights_of(run)
    if here != there:
        raise RunError(f"the weights of the same run in this process differ: {here}")
    say("the same run in this process, without Flower, gives the same weights, bit for bit")


def reader_options(option: list[str] | None) -> dict[str, Any]:
    """The options for the readers of the sites' data."""
    from fedloom.settings.overrides import assignment

    return dict(assignment(text, "--option", "target=ill") for text in option or ())


def follow(folder: ServerFolder, run: str, look: Callable[[], None] = lambda: None) -> RunState:
    """Submit a run, unless it is going on already, and show its rounds until it ends.

    look: called again and again.
    """
    from fedloom.cli.output import err
    from fedloom.deploy.run_progress import RunProgress
    from fedloom.deploy.submit import Follower, check_run_name, control_of, submit
    from fedloom.experiment.interrupt import graceful_interrupt

    check_run_name(run)
    control = control_of(folder, run)
    with RunProgress(folder.runs / run, err) as progress:
        follower = Follower(folder, run, say, progress.look)
        submission = None if control.is_alive() else submit(folder, run)
        with graceful_interrupt(say) as interrupted:

            def poll() -> None:
                look()
                if interrupted():
                    control.ask_to_stop()

            follower.on_poll = poll
            return follower.follow(submission)


def end(state: RunState, again: str) -> None:
    """Leave the command as the run ended; return only if it is finished."""
    if state.state == "stopped":
        say(f"{state.message}; continue with: {again}")
        raise typer.Exit(130)
    if state.state == "failed":
        raise UserError(state.message) if state.exit_code == 2 else RunError(state.message)


def weights_of(path: Path) -> str | None:
    """The sha256 of a finished run's weights."""
    from fedloom.experiment.stored_run import read_run

    result = read_run(path).result
    return None if result is None else result.weights_sha256


@contextmanager
def kept_or_temporary(path: Path | None) -> Iterator[Path]:
    """The folder of a trial: this one, or one that is deleted afterwards."""
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fedloom-") as parent:
        yield Path(parent) / "trial"


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Inside, SIGTERM and a closed terminal do what Ctrl-C does, so that everything is ended."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_result(path: Path, as_json: bool) -> None:
    """Print a finished run as `fedloom run` does."""
    from fedloom.cli.run import print_result
    from fedloom.experiment.stored_run import read_run

    stored = read_run(path)
    assert stored.result is not None
    print_result(stored.result, path, stored.config, as_json)
