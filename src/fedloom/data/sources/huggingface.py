"""HuggingFace data sets, `hf:NAME` or `hf:FOLDER`, read with the library `datasets`.

A folder is what save_to_disk writes, or holds Parquet, Arrow, CSV or JSON-lines files, of which
those named test or validation are the test split. A name that is no folder is downloaded from the
Hub. Columns of type Image are images, lists and arrays of numbers are signals, images or volumes,
and the other columns are a table. With kind=text, strings of one length with the next character as
target are text, as in LEAF. Names of a ClassLabel are the class names. No code of a data set runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.data.dataset import Dataset
from fedloom.data.sources import holdout, text
from fedloom.data.sources.array_kinds import ChannelsOption
from fedloom.data.sources.assemble import Assembly, Samples, dataset_from_samples
from fedloom.data.sources.build import Name, build_dataset, raw_split
from fedloom.data.sources.client_column import check_ids_repeat
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.hf_columns import (
    Columns,
    Wishes,
    choose_columns,
    column,
    samples_from,
)
from fedloom.data.sources.hf_open import PREFIX, chosen_splits, is_saved, open_splits
from fedloom.data.sources.image_folder import Size
from fedloom.data.sources.targets import TaskOption

LOOKS_FOR = "--from hf:NAME or hf:FOLDER, or a folder written by save_to_disk of `datasets`"

Config = Annotated[
    str | None, Param("configuration of a data set on the Hub, for those that have several")
]
Train = Annotated[str, Param("split to train on")]
Test = Annotated[
    str,
    Param("split to test on; by default test or validation; hold-out: a part of the training one"),
]
Target = Annotated[
    str | None, Param("column with the labels; by default label, target or y, or the ClassLabel")
]
Client = Annotated[str | None, Param("column that names the client of a row")]
Input = Annotated[
    str | None,
    Param("column with the samples; by default that of images or arrays, else all, as a table"),
]
HubKind = Annotated[
    Literal["table", "signal", "image", "volume", "text"] | None,
    Param("what the samples are, if their columns leave it open"),
]
Drop = Annotated[str, Param("columns to leave out, comma-separated")]
Categorical = Annotated[
    str, Param("columns of a table to treat as categories even if they hold numbers")
]


def detect(path: Path) -> bool:
    """Whether it is a folder that save_to_disk has written."""
    return path.is_dir() and is_saved(path)


def read(
    path: str | Path,
    name: Name = None,
    config: Config = None,
    train: Train = "train",
    test: Test = "",
    target: Target = None,
    client: Client = None,
    input: Input = None,
    kind: HubKind = None,
    channels: ChannelsOption = None,
    size: Size = None,
    drop: Drop = "",
    categorical: Categorical = "",
    test_share: holdout.TestShare = 0.2,
    task: TaskOption = "classification",
) -> Dataset:
    """The data set of a folder or of a name on the Hub."""
    source = str(path).removeprefix(PREFIX)
    splits = open_splits(source, config)
    folder = Path(source).expanduser()
    source = str(folder.resolve()) if folder.exists() else source
    names = chosen_splits(splits, train, test, source)
    wishes = Wishes(target, client, input, _listed(drop), kind, channels, size, task=task)
    wheres = [f"{source}, split '{split}'" for split in names]
    chosen = choose_columns(splits[names[0]], wishes, wheres[0])
    about = {"format": "huggingface", "source": source, "target": f"column '{chosen.target}'"}
    if len(names) > 1:
        about["test split"] = f"the split {names[1]}"
    named = name or Path(source).name
    parts = [(splits[split], where) for split, where in zip(names, wheres, strict=True)]
    if kind == "text":
        if task != "classification":
            raise UserError("kind=text is read without task=; set task=next-token in the run")
        return _text_dataset(named, parts, chosen, wishes, test_share, about)
    samples = [samples_from(data, chosen, wishes, where) for data, where in parts]
    _check_clients(samples[0], client)
    how = Assembly(
        test_share,
        standardise=True,
        categorical=_listed(categorical),
        drop="leave the column out with drop='{}'",
        task=task,
    )
    held_out = samples[1] if len(samples) > 1 else None
    return dataset_from_samples(named, samples[0], held_out, how, about)


def _check_clients(samples: Samples, client: str | None) -> None:
    if samples.users is not None:
        columns = samples.x if isinstance(samples.x, dict) else {}
        check_ids_repeat(samples.users, f"{samples.where}, column '{client}'", columns)


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _text_dataset(
    name: str,
    parts: list[tuple[Any, str]],
    chosen: Columns,
    wishes: Wishes,
    test_share: float,
    about: dict[str, str],
) -> Dataset:
    """Next-character prediction: strings of one length, and the character after each."""
    pairs = [_code_points(data, chosen, wishes, where) for data, where in parts]
    letters = text.alphabet([array for pair in pairs for array in pair])
    splits = []
    for (data, where), (x, y) in zip(parts, pairs, strict=True):
        users = None if chosen.client is None else np.array(column(data, chosen.client)).astype(str)
        encoded = text.encode(x, letters), text.encode(y[:, 0], letters)
        splits.append(raw_split(*encoded, where, users))
    if len(splits) == 1:
        about["test split"] = holdout.description(test_share, True, tail=True)
        splits = list(holdout.split_off_test(splits[0], test_share, tail=True))
    classes = tuple(chr(letter) for letter in letters.tolist())
    return build_dataset(name, "text", splits[0], splits[1], about, classes)


def _code_points(
    data: Any, chosen: Columns, wishes: Wishes, where: str
) -> tuple[np.ndarray, np.ndarray]:
    strings = [n for n in chosen.features if _is_text(data, n)]
    inputs = [wishes.input] if wishes.input else strings
    if len(inputs) != 1 or not (_is_text(data, inputs[0]) and _is_text(data, chosen.target)):
        expected = "strings of one length in one column (input=) and the next character in another"
        remedy = "name them with input= and target=; other labels of texts are not supported"
        raise data_error(where, f"target '{chosen.target}'", f"for kind=text {expected}", remedy)
    nexts = column(data, chosen.target)
    if any(value is None or len(value) != 1 for value in nexts):
        found = f"labels in column '{chosen.target}' that are not one character"
        remedy = "fedloom predicts the next character; other labels of texts are not supported"
        raise data_error(where, found, "the character that follows each text", remedy)
    texts = ["" if value is None else value for value in column(data, inputs[0])]
    return text.code_points(texts, where), text.code_points(nexts, where)


def _is_text(data: Any, name: str) -> bool:
    return "string" in str(getattr(data.features[name], "dtype", ""))
