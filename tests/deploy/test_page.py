"""The steps of docs/deploy.md, as they are written there, with a process for every terminal."""

import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedloom.deploy.processes import Process, environment, stop_all

pytestmark = [pytest.mark.deploy, pytest.mark.posix]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## From simulation to three sites")[2].partition("\n## ")[0]
STAYS = ("deploy server", "deploy node")  # commands that are left running


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def words_of(command: str) -> list[str]:
    name, *words = shlex.split(command)
    assert name == "fedloom"
    return [sys.executable, "-m", "fedloom", *words]


def test_the_page_has_the_steps() -> None:
    text = "\n".join(commands())
    for step in ("data add", "fedloom run", "deploy init", *STAYS, "deploy status", "deploy run"):
        assert step in text
    assert text.count("deploy node") == 3


def test_the_steps_of_the_page_work(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copytree(ROOT / "docs/examples", tmp_path / "docs/examples")
    settings = re.findall(r"```toml\n(# hospitals\.toml\n.*?)```", SECTION, re.DOTALL)[0]
    (tmp_path / "hospitals.toml").write_text(settings)
    env = {**environment(tmp_path / "home"), "FEDLOOM_HOME": str(tmp_path / "data")}
    left: list[Process] = []
    with ExitStack() as stack:
        stack.callback(stop_all, left)
        for number, command in enumerate(commands()):
            if any(step in command for step in STAYS):
                log = tmp_path / f"terminal-{number}.log"
                terminal = ["sh", "-c", f"cd {tmp_path} && exec {shlex.join(words_of(command))}"]
                left.append(Process(command, terminal, env, log))
                continue
            if "deploy run" in command:
                wait_for_server(left[0])
            done = subprocess.run(
                words_of(command), cwd=tmp_path, env=env, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "hospitals/server/runs/hospitals" in done.stdout  # the report, the last of them
        assert [process.exit_code for process in left] == [None] * 4
        for process in left:
            process.ask_to_end()
        for process in left:
            process.stop(60)
        assert [process.exit_code for process in left] == [0] * 4
        commands_now = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
        assert not [command for command in commands_now if bytes(tmp_path) in command]
    simulated, deployed = (
        tmp_path / "runs/simulated/result.json",
        tmp_path / "hospitals/server/runs/hospitals/result.json",
    )
    assert simulated.is_file() and deployed.is_file()


def wait_for_server(server: Process) -> None:
    deadline = time.monotonic() + 120
    while "the server answers" not in server.log.read_text():
        server.check_running()
        assert time.monotonic() < deadline
        time.sleep(0.2)
