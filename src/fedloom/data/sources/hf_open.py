"""Opening a HuggingFace data set: a folder on this machine, or a name on the Hub.

No code of the data set ever runs: `datasets` has no loading scripts since version 4, and files of a
folder are read by pyarrow. Nothing is sent but the request for the files.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from fedloom.core.errors import UserError, unknown_name
from fedloom.data.sources.errors import data_error, folder_listing, missing_extra
from fedloom.data.sources.memory import check_fits_in_memory

PREFIX = "hf:"
SAVED = ("dataset_dict.json", "state.json")  # what save_to_disk writes
TEST_WORDS = ("test", "validation", "valid", "val", "dev")
HOLD_OUT = "hold-out"  # as the name of the test split
PATIENCE = 5.0  # seconds for the Hub to answer
Splits = dict[str, Any]  # datasets.Dataset by the name of the split


def library() -> Any:
    """The module `datasets`; the Hub's telemetry is off."""
    try:
        with _environment({"HF_HUB_DISABLE_TELEMETRY": "1"}):
            import datasets
    except ImportError:
        raise missing_extra("reading HuggingFace data sets", "datasets", "huggingface") from None
    return datasets


def is_saved(path: Path) -> bool:
    """Whether it is a folder that save_to_disk has written."""
    return any((path / name).is_file() for name in SAVED)


def open_splits(source: str, config: str | None) -> Splits:
    """The splits of a folder if there is one of this name, else of a data set on the Hub."""
    folder = Path(source).expanduser()
    if not source.strip() or not folder.exists():
        if not source.strip() or source.startswith((".", "/", "~")):
            raise UserError(
                f"no folder '{source}'; give hf:FOLDER or the name of a data set, hf:NAME"
            )
        return _from_hub(source, config)
    if config is not None:
        remedy = "leave config= out, and give the folder of one configuration"
        raise data_error(folder, "a folder", "a name on the Hub for config=", remedy)
    return _saved_splits(folder) if is_saved(folder) else _file_splits(folder)


def chosen_splits(splits: Splits, train: str, test: str, where: object) -> list[str]:
    """The names of the training split and, unless samples are to be held out, of the test split."""
    if train not in splits:
        if len(splits) > 1 or train != "train":
            raise unknown_name("split", train, splits, place=where)
        train = next(iter(splits))  # the only one, whatever its name
    if not test:
        known = (word for word in TEST_WORDS if word in splits and word != train)
        test = next(known, HOLD_OUT)
    if test == HOLD_OUT:
        return [train]
    if test not in splits:
        raise unknown_name("split", test, splits, place=where)
    if test == train:
        found, remedy = f"the split '{test}' for both", "name another one, or set test=hold-out"
        raise data_error(where, found, "two splits", remedy)
    return [train, test]


def _saved_splits(folder: Path) -> Splits:
    """What save_to_disk has written: one split or several."""
    datasets = library()
    with _readable(folder):
        opened = datasets.load_from_disk(str(folder))
    return dict(opened) if isinstance(opened, dict) else {"train": opened}


def _file_splits(folder: Path) -> Splits:
    """The splits of Parquet, Arrow, CSV or JSON-lines files, directly in a folder or in its data/.

    A file belongs to the split that a word of its name says, such as test-00000-of-00001, else to
    the training split.
    """
    files: dict[str, list[Path]] = {}
    for place in (folder, folder / "data"):
        found = sorted(place.iterdir()) if place.is_dir() else [place]
        for file in found:
            if file.is_file() and file.suffix.lower() in TABLES:
                files.setdefault(split_of(file), []).append(file)
        if files:
            break
    if not files:
        expected = "what save_to_disk writes, or .parquet, .arrow, .csv, .json or .jsonl files"
        raise data_error(folder, folder_listing(folder), expected, "give such a folder")
    return {split: _joined(paths) for split, paths in files.items()}


def split_of(file: Path) -> str:
    """The split that a file's name says.

    >>> split_of(Path("data/validation-00000-of-00001.parquet")), split_of(Path("part1.csv"))
    ('validation', 'train')
    """
    words = re.split(r"[^a-z]+", file.stem.lower())
    return next((word for word in words if word in TEST_WORDS), "train")


def _joined(files: list[Path]) -> Any:
    datasets = library()
    import pyarrow

    with _readable(files[0].parent):
        check_fits_in_memory(sum(map(_size, files)), files[0].parent, f"{len(files)} files")
        tables = [TABLES[file.suffix.lower()](file) for file in files]
        return datasets.Dataset(pyarrow.concat_tables(tables, promote_options="default"))


def _size(file: Path) -> int:
    """The bytes of a file's content; Parquet states them, others are hardly compressed."""
    if file.suffix.lower() != ".parquet":
        return file.stat().st_size
    import pyarrow.parquet

    facts = pyarrow.parquet.read_metadata(file)
    return sum(facts.row_group(group).total_byte_size for group in range(facts.num_row_groups))


def _read_parquet(file: Path) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(file)


def _read_csv(file: Path) -> Any:
    import pyarrow.csv

    return pyarrow.csv.read_csv(file)


def _read_json(file: Path) -> Any:
    import pyarrow.json

    return pyarrow.json.read_json(file)


def _read_arrow(file: Path) -> Any:
    import pyarrow.ipc

    data = file.read_bytes()
    starts_as_file = data.startswith(b"ARROW1")
    reader = pyarrow.ipc.open_file if starts_as_file else pyarrow.ipc.open_stream
    return reader(data).read_all()


TABLES: dict[str, Callable[[Path], Any]] = {
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".csv": _read_csv,
    ".json": _read_json,
    ".jsonl": _read_json,
}


def _from_hub(name: str, config: str | None) -> Splits:
    """All splits of a data set on the Hub, downloaded or from the cache of `datasets`."""
    offline = {} if _hub_answers() else {"HF_HUB_OFFLINE": "1"}
    with _environment(offline):
        datasets = library()
        try:
            return dict(datasets.load_dataset(name, config))
        except Exception as error:  # the library, its file systems and its readers raise anything
            raise _hub_error(name, error, bool(offline)) from None


def _hub_error(name: str, error: Exception, offline: bool) -> UserError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if offline or isinstance(error, ConnectionError):
        return UserError(
            f"data set '{name}' is no folder here and not in the cache of HuggingFace, and the Hub "
            f"cannot be reached ({reason}); download it on a machine with network access, store it "
            "with save_to_disk(FOLDER), and give --from hf:FOLDER"
        )
    return UserError(
        f"cannot load '{name}' from the HuggingFace Hub ({reason}); check its name, name a "
        "configuration with config=, or give a folder, hf:FOLDER"
    )


def _hub_answers() -> bool:
    """Whether the Hub can be reached, found in seconds: `datasets` tries for half a minute."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if address.scheme in getproxies():  # then the way there is not ours to test
        return True
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables within this scope; `datasets` reads them when it is imported."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _readable(place: Path) -> Iterator[None]:
    """Turn what `datasets` and pyarrow raise for damaged files into a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        found = f"no readable data set ({type(error).__name__}: {str(error)[:200]})"
        raise data_error(place, found, "complete files", "write or download them again") from None
