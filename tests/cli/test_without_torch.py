"""Commands that only list or explain something do not import torch, so that they answer at once."""

import os
import subprocess
import sys

import pytest

from cli.talk import fedloom

COMMANDS = [
    "--help",
    "--version",
    "run --help",
    "data --help",
    "methods",
    "models",
    "models resnet8",
    "models --json",
    "presets",
    "presets demo",
    "presets fedalign/table2",
    "presets --json",
    "reproduce --claims",
    "reproduce --claims fedmix --json",
    "data list",
    "data list --json",
]

RUN = """
import sys
from fedloom.cli.main import main

sys.argv = ["fedloom", *sys.argv[1:]]
try:
    main()
except SystemExit as ending:
    assert not ending.code, ending.code
assert "torch" not in sys.modules
"""


def python(code: str, *words: str) -> str:
    """What a new Python process prints; it must end well."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=os.environ
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_not_import_torch(command: str) -> None:
    assert python(RUN, *command.split())


def test_importing_the_package_does_not_import_torch() -> None:
    python("import fedloom, sys; assert 'torch' not in sys.modules")


def test_the_lists_have_content() -> None:
    """Added data sets are listed too: the home of the tests has `tiny`."""
    assert "fedprox" in python(RUN, "methods") and "resnet56" in python(RUN, "models")
    assert "tiny" in python(RUN, "data", "list") and "demo" in python(RUN, "presets")


@pytest.mark.parametrize("name", ["fedprox", "localmix"])
def test_a_method_is_described_with_its_parameters(name: str) -> None:
    assert "parameter" in fedloom("methods", name).out
    (method,) = fedloom("methods", name, "--json").json
    assert method["parameters"] and method["summary"]
