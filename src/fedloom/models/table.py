"""The registered models on their typical inputs, read from table.json without importing torch.

Listing the models this way takes milliseconds; building them takes seconds. After adding or
changing a model, rewrite the table with

    python -m fedloom.models.table

A test compares it with freshly computed figures. For other inputs use models/describe.py.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fedloom.core.errors import unknown_name

PATH = Path(__file__).with_name("table.json")


@cache
def _table() -> dict[str, dict[str, Any]]:
    models: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return {model["name"]: model for model in models}


def names() -> list[str]:
    """The names of the registered models, in the order of the registry."""
    return list(_table())


def describe(name: str) -> dict[str, Any]:
    """One model on its typical input, with the keys of `describe_model`.

    Raises UserError, with the nearest name, if there is no such model.
    """
    if name not in _table():
        raise unknown_name("model", name, _table(), see="fedloom models")
    return _table()[name]


def describe_all() -> list[dict[str, Any]]:
    """All models on their typical inputs, in the order of the registry."""
    return list(_table().values())


def as_text(models: list[dict[str, Any]]) -> str:
    """The content of table.json: one line per block and per argument, so that changes show."""
    return "[\n" + ",\n".join(_model_text(model) for model in models) + "\n]\n"


def _model_text(model: dict[str, Any]) -> str:
    lines = []
    for key, value in model.items():
        if isinstance(value, list) and value:
            items = ",\n".join(f"    {json.dumps(item)}" for item in value)
            lines.append(f'  "{key}": [\n{items}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value)}')
    return " {\n" + ",\n".join(lines) + "\n }"


def rewrite(path: Path = PATH) -> None:
    """Compute the table from the models and write it."""
    from fedloom.models.describe import describe_models

    path.write_text(as_text(describe_models()), encoding="utf-8")
    _table.cache_clear()


if __name__ == "__main__":
    rewrite()
