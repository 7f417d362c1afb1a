"""The settings can be imported and read without torch, which takes seconds to load."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "fedloom.settings.config",
        "fedloom.settings.presets",
        "fedloom.settings.paper_table",
        "fedloom.metrics.measures",
        "fedloom.metrics.curve",
    ],
)
def test_importing_a_settings_module_does_not_import_torch(module: str) -> None:
    """Each in a new process, so that no other import can hide a circular one."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_reading_every_preset_does_not_import_torch() -> None:
    code = """
import sys
from fedloom.settings.config import load
from fedloom.settings.presets import names, preset

for name in names():
    load(preset(name).settings)
sys.exit("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
