"""What fedloom understood of a data set: rows, clients, features, target, classes, missing values.

`summary` gives it as data, `summary_lines` as text for the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.sources.errors import shortened

# Entries of Dataset.about that the summary or the remarks of the checks contain.
SUMMARISED = ("target", "test split", "columns", "features", "remarks")
NAMED = 6  # features, clients and columns that a line names
CLASSES_NAMED = 10
FILLED = "a missing number becomes the median, and an extra 0/1 input marks missing values"
NO_CLIENTS = "not in the data: a partition makes them"


def summary(dataset: Dataset) -> dict[str, Any]:
    """What was understood, as JSON; parts that do not apply are left out."""
    facts: dict[str, Any] = {
        "rows": {
            "total": len(dataset.train) + len(dataset.test),
            "train": len(dataset.train),
            "test": len(dataset.test),
            "test_split": dataset.about.get("test split", "from the files"),
        },
        "clients": _clients(dataset),
        "features": _features(dataset),
        **_target_facts(dataset),
    }
    if "target" in dataset.about:
        facts["target"] = dataset.about["target"]
    if (columns := column_facts(dataset)) is not None:
        missing = {c["name"]: c["missing"] for c in columns if c["missing"]}
        facts["missing"] = {"values": sum(missing.values()), "columns": missing, "filled": FILLED}
    return facts


def summary_lines(facts: Mapping[str, Any]) -> dict[str, str]:
    """The summary as one line of text for each thing."""
    rows, clients = facts["rows"], facts["clients"]
    unit = "rows" if facts["features"]["kind"] == "table" else "samples"
    lines = {
        unit: f"{rows['total']:,}: {rows['train']:,} to train, {rows['test']:,} to test "
        f"({rows['test_split']})",
        "clients": _clients_line(clients, unit) if clients else NO_CLIENTS,
        **_feature_lines(facts["features"]),
    }
    if "target" in facts:
        lines["target"] = facts["target"]
    lines |= _target_lines(facts)
    if "missing" in facts:
        lines["missing values"] = _missing_line(facts["missing"])
    return lines


def column_facts(dataset: Dataset) -> list[dict[str, Any]] | None:
    """What became of each column of a table that was read from files, else None."""
    text = dataset.about.get("features")
    return None if text is None else json.loads(text)


def _clients(dataset: Dataset) -> dict[str, Any] | None:
    if dataset.train.users is None:
        return None
    splits = [s.users.numpy() for s in (dataset.train, dataset.test) if s.users is not None]
    sizes = np.bincount(np.concatenate(splits), minlength=len(dataset.users))
    return {
        "count": len(dataset.users),
        "names": list(dataset.users),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
    }


def _features(dataset: Dataset) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": dataset.kind, "shape": list(dataset.shape)}
    if (columns := column_facts(dataset)) is not None:
        facts["columns"] = columns
    return facts


def _target_facts(dataset: Dataset) -> dict[str, Any]:
    """How often each class or label occurs, what the numbers are, or how many tokens there are."""
    y = np.concatenate([dataset.train.labels, dataset.test.labels])
    if dataset.task == "classification":
        return {"classes": _class_counts(dataset, y)}
    if dataset.task == "next-token":
        return {"task": dataset.task, "tokens": len(dataset.classes)}
    columns = zip(dataset.classes, y.reshape(len(y), -1).T.astype(np.float64), strict=True)
    if dataset.task == "multilabel":
        return {"task": dataset.task, "labels": {name: int(c.sum()) for name, c in columns}}
    numbers = {name: {"min": c.min(), "mean": c.mean(), "max": c.max()} for name, c in columns}
    return {"task": dataset.task, "targets": numbers}


def _class_counts(dataset: Dataset, labels: np.ndarray) -> dict[str, int]:
    counts = np.bincount(labels, minlength=len(dataset.classes)).tolist()
    return dict(zip(dataset.classes, counts, strict=True))


def _target_lines(facts: Mapping[str, Any]) -> dict[str, str]:
    if "classes" in facts:
        return {"classes": _classes_line(facts["classes"])}
    lines = {"task": facts["task"]}
    if "labels" in facts:
        lines["labels"] = _classes_line(facts["labels"])
    elif "tokens" in facts:
        lines["tokens"] = f"{facts['tokens']:,}"
    else:
        each = (
            f"{name}, {v['min']:.4g} to {v['max']:.4g}, mean {v['mean']:.4g}"
            for name, v in facts["targets"].items()
        )
        lines["numbers"] = shortened(each, NAMED)
    return lines


def _clients_line(clients: Mapping[str, Any], unit: str) -> str:
    smallest, largest = f"{clients['smallest']:,}", f"{clients['largest']:,}"
    sizes = smallest if smallest == largest else f"{smallest} to {largest}"
    return f"{clients['count']:,}, {sizes} {unit} each: {shortened(clients['names'], NAMED)}"


def _feature_lines(features: Mapping[str, Any]) -> dict[str, str]:
    shape = " x ".join(map(str, features["shape"]))
    if "columns" not in features:
        return {"kind": f"{features['kind']}, {shape}"}
    columns: Sequence[Mapping[str, Any]] = features["columns"]
    numeric = [c for c in columns if c["kind"] == "numeric"]
    one_hot = [c for c in columns if c["kind"] != "numeric" and c["one_hot"]]
    ranked = [c for c in columns if c["kind"] != "numeric" and not c["one_hot"]]
    inputs = counted(features["shape"][0], "input")
    lines = {"features": f"{counted(len(columns), 'column')}, {inputs} of the model"}
    if numeric:
        lines["  numeric"] = f"{len(numeric)}, standardised: {_names(numeric)}"
    if one_hot:
        inputs = counted(sum(column["inputs"] for column in one_hot), "input")
        lines["  categorical"] = f"{len(one_hot)}, one-hot encoded as {inputs}: {_names(one_hot)}"
    if ranked:
        lines["  many values"] = f"{len(ranked)}, as positions in the sorted list: {_names(ranked)}"
    return lines


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "column"), counted(1200, "column")
    ('1 column', '1,200 columns')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _names(columns: Iterable[Mapping[str, Any]]) -> str:
    return shortened((column["name"] for column in columns), NAMED)


def _classes_line(counts: Mapping[str, int]) -> str:
    listed = shortened((f"{_visible(n)} ({c:,})" for n, c in counts.items()), CLASSES_NAMED)
    return f"{len(counts):,}: {listed}"


def _visible(name: str) -> str:
    """A class name that can be seen: a blank or a line break in quotes."""
    return name if name.isprintable() and name == name.strip() else repr(name)


def _missing_line(missing: Mapping[str, Any]) -> str:
    if not missing["values"]:
        return "none"
    columns = missing["columns"]
    listed = shortened((f"{name} ({count:,})" for name, count in columns.items()), NAMED)
    return (
        f"{missing['values']:,} in {counted(len(columns), 'column')}: {listed}; {missing['filled']}"
    )
