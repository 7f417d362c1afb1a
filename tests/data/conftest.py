"""The writers of tiny files, and the golden arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from data import writers


@pytest.fixture(scope="session")
def write() -> SimpleNamespace:
    """The writers."""
    names = ("idx_bytes", "idx", "cifar10", "cifar100", "picture", "tiny", "leaf", "table", "npz")
    return SimpleNamespace(**{name: getattr(writers, name) for name in names})


@pytest.fixture
def rejects(write: SimpleNamespace, tmp_path: Path) -> Callable[..., None]:
    """Write invalid data, read them, and look for the expected pieces in the error message."""
    from fedloom.core.errors import UserError
    from fedloom.data.sources import read

    def reject(
        make: Callable[[SimpleNamespace, Path], Path],
        expected: Sequence[str],
        options: Mapping[str, Any],
    ) -> None:
        path = make(write, tmp_path)
        with pytest.raises(UserError) as caught:
            read(path, **options)
        message = str(caught.value)
        assert [piece for piece in expected if piece not in message] == [], message
        if ": found " in message:
            assert message.startswith(str(tmp_path)), "the file is named first"
            assert ", expected " in message
            assert "; " in message

    return reject


Golden = Callable[[str], dict[str, np.ndarray]]


@pytest.fixture(scope="session")
def golden() -> Golden:
    """Load golden arrays by 'paper/name'."""
    root = Path(__file__).parents[1] / "golden"

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(root / f"{name}.npz", allow_pickle=False) as file:
            return dict(file)

    return load
