"""A process that imports fedloom once and runs each command in a fork, which can be killed.

Commands come as lines of JSON on stdin, answers go as lines of JSON to stdout; `forks.py` is the
other end. The first command runs here, not in a fork, so that what a process does only once is done
and a kill hardly ever falls into it.
"""

import contextlib
import io
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any

import torch

from fedloom.cli.main import app
from fedloom.runs.folder import RunFolder


def serve() -> None:
    torch.set_num_threads(1)  # a fork inherits no threads: there must be none to miss
    first = json.loads(sys.stdin.readline())
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        app(first, standalone_mode=False)
    for line in sys.stdin:
        print(json.dumps(played(json.loads(line))), flush=True)


def played(order: dict[str, Any]) -> dict[str, Any]:
    """The exit status of the command and how long it ran. Its end closes the pipe in any case."""
    ours, theirs = os.pipe()
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.close(ours)
        obey(order)
    os.close(theirs)
    ended, _, _ = select.select([ours], [], [], order["kill_after"])
    if not ended:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(ours)
    return {"status": status, "seconds": time.perf_counter() - started}


def obey(order: dict[str, Any]) -> None:
    """In the child: run the command and exit at once, without what belongs to the parent."""
    for handle, name in ((1, order["out"]), (2, order["err"])):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), handle)
    if order["die_at_line"]:
        die_at_line(order["die_at_line"])
    status = 70
    try:
        app(order["words"])
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def die_at_line(number: int) -> None:
    """Kill -9 as soon as this many lines of metrics are written, before the round is saved."""
    write = RunFolder.append_metrics

    def last(folder: RunFolder, line: Any) -> None:
        write(folder, line)
        if line["round"] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(RunFolder, "append_metrics", last)  # noqa: B010 (an assignment to a method is an error to type checkers)


if __name__ == "__main__":
    serve()
