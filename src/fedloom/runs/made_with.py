"""The software, the processor and the code path of this process, as a manifest records them."""

from __future__ import annotations

import functools
import os
import platform
import re
from pathlib import Path

import numpy as np
import torch

import fedloom
from fedloom.core.identity import MadeWith
from fedloom.core.source_files import own_source_sha256

# Settings by which users choose the instructions or the precision of torch, oneDNN and MKL.
PATH_SETTINGS = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_CPU_ISA_HINTS",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
)
_CPU_INFO = Path("/proc/cpuinfo")
_MODEL_LINES = ("model name", "Model", "Hardware", "cpu model")
_FLAG_LINES = ("flags", "Features")
_ARITHMETIC = re.compile(r"(sse|ssse|avx|amx|fma|f16c|asimd|sve|neon|bf16|i8mm)\w*")


def made_with() -> MadeWith:
    """The facts of this process. What cannot change in it is read once."""
    return MadeWith(
        fedloom=fedloom.__version__,
        source=own_source_sha256(),
        torch=torch.__version__,
        numpy=np.__version__,
        python=platform.python_version(),
        cpu=cpu_model(),
        code_path=_code_path(),
    )


def _code_path() -> dict[str, str]:
    path = {
        "torch's CPU capability": torch.backends.cpu.get_cpu_capability(),
        "oneDNN": "on" if _uses_onednn() else "off",
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "CPU instructions": _instructions(),
    }
    given = {name: os.environ.get(name) for name in PATH_SETTINGS}
    return path | {name: value for name, value in given.items() if value is not None}


def _uses_onednn() -> bool:
    mkldnn = torch.backends.mkldnn
    return bool(mkldnn.is_available() and mkldnn.enabled)  # type: ignore[no-untyped-call]


def cpu_model() -> str:
    """The name of the processor; of its family where the system does not tell."""
    return _cpu_line(_MODEL_LINES) or platform.processor() or platform.machine() or "unknown"


@functools.cache
def _instructions() -> str:
    """The arithmetic extensions of the processor that the system shows, sorted."""
    return " ".join(sorted(filter(_ARITHMETIC.fullmatch, set(_cpu_line(_FLAG_LINES).split()))))


@functools.cache
def _cpu_line(names: tuple[str, ...]) -> str:
    """The value of the first of these lines that the system's description of the CPU has."""
    try:
        text = _CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return next((found[name] for name in names if found.get(name)), "")
