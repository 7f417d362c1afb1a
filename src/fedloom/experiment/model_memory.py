"""Whether a model fits in memory, found out before it takes any."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.data.dataset import Dataset
from fedloom.models import registry as models

COPIES = 4  # of the weights: the server's, those in training, their gradient, and their change

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def check_memory(spec: Spec, dataset: Dataset, dtype: torch.dtype) -> None:
    """Raise if training a registered model would need more memory than there is.

    It is built without values to be counted. A user's model is not: its code may not expect that.
    """
    if spec.name not in models.MODELS:
        return
    try:
        chain = models.build(
            spec, dataset.shape, len(dataset.classes), Key.root(0), dtype, device="meta"
        )
    except RuntimeError as error:  # the number of bytes overflows in torch
        if "overflow" in str(error):
            raise too_large(spec) from error
        return  # another problem, which building it with values reports
    check_fits(spec, chain, COPIES)


def check_fits(spec: Spec, chain: Chain, copies: int) -> None:
    """Raise if there is not enough memory for this many copies of the model."""
    needed, available = copies * _bytes_of(chain), available_memory()
    if available is not None and needed > available:
        count = sum(p.numel() for p in chain.parameters())
        raise UserError(
            f"model '{_name(spec)}' has {count:,} weights and needs about {in_units(needed)} of "
            f"memory in training, but {in_units(available)} are available; choose a smaller model"
        )


def too_large(spec: Spec) -> UserError:
    """The error for a model that could not be built for lack of memory."""
    available = available_memory()
    there = "" if available is None else f", {in_units(available)} of which are available"
    return UserError(f"model '{_name(spec)}' does not fit in memory{there}; choose a smaller model")


def _name(spec: Spec) -> str:
    return str(Spec(user_code.short_reference(spec.name), spec.args))


def ran_out_of_memory(error: Exception) -> bool:
    """Whether an error, or its cause, says that there is not enough memory.

    It is known by its words: on a CPU torch has no type for it.
    """
    if isinstance(error.__cause__, Exception):
        return ran_out_of_memory(error.__cause__)
    text = str(error).lower()
    said = "allocate memory" in text or "not enough memory" in text or "out of memory" in text
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and said)


def available_memory() -> int | None:
    """Bytes that this process can still take; None where that cannot be found out."""
    limits = [limit for limit in (_free_memory(), _container_limit()) if limit is not None]
    return min(limits, default=None)


def in_units(count: float) -> str:
    """Bytes as text.

    >>> in_units(999), in_units(3.2e9)
    ('999 B', '3.2 GB')
    """
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:,.1f} {_UNITS[-1]}"


def _bytes_of(chain: Chain) -> int:
    return sum(t.numel() * t.element_size() for t in chain.state_dict().values())


def _free_memory() -> int | None:
    """What Linux calls available; elsewhere all of the machine's memory."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def _container_limit() -> int | None:
    """The limit that a container sets on Linux."""
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None
