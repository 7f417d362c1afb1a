"""Importing this module removes from Python what Windows does not have: fcntl, os.fork and more.

fedloom, imported afterwards, fails here where it would fail there. The libraries that it needs are
imported before: they know that they run on a POSIX system.
"""

import importlib.abc
import importlib.machinery
import multiprocessing.connection  # noqa: F401
import os
import signal
import socket
import sqlite3  # noqa: F401
import subprocess  # noqa: F401
import sys
from collections.abc import Sequence
from types import ModuleType

import rich.progress  # noqa: F401
import safetensors.torch  # noqa: F401
import torch  # noqa: F401
import typer.testing  # noqa: F401

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
NAMES = {
    os: (
        "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK WNOHANG chown fchmod fchown fork forkpty "
        "getgid getloadavg getpgid geteuid getuid killpg mkfifo posix_fadvise "
        "posix_fallocate posix_spawn pread pwrite sched_getaffinity sched_setaffinity setsid "
        "sysconf uname wait3 wait4 writev"
    ),
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGSTOP SIGUSR1 alarm setitimer sigwait",
    socket: "AF_UNIX recv_fds send_fds",
}


class NotOnThisSystem(importlib.abc.MetaPathFinder):
    """Refuses to import the modules that only POSIX systems have."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return None


for module in MODULES:
    sys.modules.pop(module, None)
sys.meta_path.insert(0, NotOnThisSystem())
for owner, names in NAMES.items():
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)
