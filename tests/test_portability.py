"""fedloom without POSIX: everything but the forked pool works as on Windows.

Each test runs in a process from which support/without_posix.py has removed what Windows lacks.
"""

import json
import os
import subprocess
from pathlib import Path

from support import warm_python

TESTS = Path(__file__).parent
IMPORT_EVERYTHING = """
import importlib, pkgutil, fedloom
for name in fedloom.__all__:
    getattr(fedloom, name)
for module in pkgutil.walk_packages(fedloom.__path__, "fedloom."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
RUN_AND_RESUME = """
import json, sys, fedloom as fl

class Crash(fl.Callback):
    def on_round(self, record):
        raise OSError("the power fails")

def experiment(method):
    return fl.Experiment(
        method=method, data="crowd-8", partition="user", clients=8, per_round=3, rounds=2,
        model="mlp(layers=1,width=4)", batch=6, engine="inprocess",
    )

whole = experiment("scaffold").run("whole")
try:
    experiment("scaffold").run("cut", callbacks=[Crash()])
except OSError:
    resumed = fl.open("cut").resume()
other = experiment("fedavg").run()
print(json.dumps({
    "same": whole.result.weights_sha256 == resumed.result.weights_sha256,
    "rows": [row.name for row in fl.compare(whole, other).rows],
    "forks": [name for name in sys.modules if name.startswith("fedloom.") and "fork" in name],
}))
"""
COMMAND = "from fedloom.cli.main import main; main()"
CROWD = (
    *("--data", "crowd-8", "--clients", "8", "--partition", "user", "--per-round", "3"),
    *("--rounds", "2", "--batch", "6", "--model", "mlp(layers=1,width=4)"),
)


def without_posix(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a process without POSIX, in that folder."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    whole = f"from support.without_posix import remove\nremove()\n{code}"
    env = {**os.environ, "PYTHONPATH": path}
    return warm_python.run("-c", whole, *arguments, folder=folder, env=env)


def test_every_module_and_public_name_can_be_imported(tmp_path: Path) -> None:
    done = without_posix(IMPORT_EVERYTHING, tmp_path)
    assert done.returncode == 0, done.stderr


def test_runs_are_trained_resumed_and_compared_in_process(tmp_path: Path) -> None:
    done = without_posix(RUN_AND_RESUME, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"same": True, "rows": ["scaffold", "fedavg"], "forks": []}


def test_the_command_line_trains_and_compares(tmp_path: Path) -> None:
    run = without_posix(COMMAND, tmp_path, "run", *CROWD, "--out", "run")
    assert run.returncode == 0 and (tmp_path / "run" / "result.json").is_file(), run.stderr
    methods = ("--methods", "fedavg,fedprox", "--out", "both")
    compare = without_posix(COMMAND, tmp_path, "compare", *CROWD, *methods)
    assert compare.returncode == 0 and "fedprox" in compare.stdout, compare.stderr


def test_the_pool_says_that_it_cannot_run_and_what_can(tmp_path: Path) -> None:
    done = without_posix(COMMAND, tmp_path, "run", *CROWD, "--engine", "pool", "--out", "run")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    said = " ".join(done.stderr.split())
    assert "engine 'pool' forks its workers, which" in said
    assert "use --engine inprocess, which gives the same bits, or --engine ray" in said
    assert not (tmp_path / "run").exists()


def test_auto_chooses_an_engine_that_does_not_fork(tmp_path: Path) -> None:
    """A run that is large enough for workers, and calibrated as slow when vectorised."""
    code = """
from fedloom.engines import choose
choose.PARALLEL_MACS = 0
choose.calibrated = lambda *arguments: "this is a test"
"""
    arguments = ("run", *CROWD, "--engine", "auto", "--workers", "4", "--verbose", "--out", "run")
    done = without_posix(code + COMMAND, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert "engine: inprocess (not vectorised, since this is a test)" in done.stderr
