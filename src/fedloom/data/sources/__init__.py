"""Readers of data on disk: one module per format, recognised by its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from fedloom.core.errors import UserError, unknown_name
from fedloom.core.spec import Parameter, call, parameters
from fedloom.data.dataset import Dataset
from fedloom.data.sources import (
    cifar,
    huggingface,
    idx,
    image_folder,
    leaf,
    npz,
    table,
    tiny_imagenet,
)
from fedloom.data.sources.hf_open import PREFIX
from fedloom.data.sources.torch_dataset import from_torch
from fedloom.data.sources.unscaled import Unscaled, unscaled

__all__ = ["SOURCES", "detect", "from_torch", "read", "read_unscaled"]

HUGGINGFACE = "huggingface"

# In the order in which they are tried: the more specific layouts first.
SOURCES: Mapping[str, ModuleType] = MappingProxyType(
    {
        "cifar": cifar,
        "idx": idx,
        "tiny_imagenet": tiny_imagenet,
        "huggingface": huggingface,
        "leaf": leaf,
        "npz": npz,
        "image_folder": image_folder,
        "table": table,
    }
)


def read(path: str | Path, format: str = "auto", **options: Any) -> Dataset:
    """The data set at a path; "auto" detects the format. Options are those of its `read`.

    A path that starts with hf: is a HuggingFace data set.
    """
    dataset: Dataset = _read(_whole_data_set, str(path), format, options)
    return dataset


def read_unscaled(path: str | Path, format: str = "auto", **options: Any) -> Unscaled:
    """The data at a path before any constant is computed from them; otherwise as `read`."""
    samples: Unscaled = _read(_unscaled_samples, str(path), format, options)
    return samples


Reader = Callable[[str, Mapping[str, Any], Path | str], Any]  # (format, options, path)


def _read(reader: Reader, path: str, format: str, options: Mapping[str, Any]) -> Any:
    """What the reader makes of the data at a path; an error that names the path if it cannot."""
    if format not in ("auto", *SOURCES):
        raise unknown_name("data format", format, ("auto", *SOURCES))
    if path.startswith(PREFIX) or format == HUGGINGFACE:
        return _read_huggingface(reader, path, format, options)
    place = Path(path).expanduser().resolve()
    if not place.exists():
        raise UserError(f"no file or folder {place}; check the path of the data")
    try:
        name = detect(place) if format == "auto" else format
        return reader(name, options, place)
    except UnicodeDecodeError as error:
        raise UserError(
            f"cannot read {place}: a text file in it is not UTF-8 ({error}); save it again as UTF-8"
        ) from None
    except OSError as error:
        raise UserError(
            f"cannot read {error.filename or place}: {error.strerror or error}; "
            "check the file and its permissions"
        ) from None


def _whole_data_set(name: str, options: Mapping[str, Any], path: Path | str) -> Any:
    return _call_reader(name, SOURCES[name].read, options, path)


def _unscaled_samples(name: str, options: Mapping[str, Any], path: Path | str) -> Any:
    """Readers of tables standardise them, so they have a function of their own for this."""
    if (reader := getattr(SOURCES[name], "read_unscaled", None)) is not None:
        return _call_reader(name, reader, options, path)
    dataset = _whole_data_set(name, options, path)
    if dataset.kind == "table":
        raise UserError(
            f"{path}: the reader of '{name}' standardises tables by itself, so several sites "
            "cannot agree on their constants; save the table as CSV, Parquet or npz"
        )
    return unscaled(dataset)


def _call_reader(
    name: str, reader: Callable[..., Any], options: Mapping[str, Any], path: Path | str
) -> Any:
    accepted = parameters(reader)
    given = {n: _as_text(v, accepted.get(n)) for n, v in options.items()}
    return call("data format", name, reader, given, path=path)


def _as_text(value: Any, parameter: Parameter | None) -> Any:
    """Numbers and lists as text for a parameter that takes text: drop=5, na=-9,-99."""
    if parameter is None or str not in parameter.kinds or parameter.problem(value) is None:
        return value
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if is_number else value


def _read_huggingface(reader: Reader, path: str, format: str, options: Mapping[str, Any]) -> Any:
    if format not in ("auto", HUGGINGFACE):
        raise UserError(f"'{path}' is a HuggingFace data set, not {format}; leave out --format")
    return reader(HUGGINGFACE, options, path)


def detect(path: Path) -> str:
    """The name of the format at a path."""
    name = _matching_format(path)
    if name is not None:
        return name
    expected = "".join(f"\n  {name}: {source.LOOKS_FOR}" for name, source in SOURCES.items())
    raise UserError(f"no known data format at {path}{_hint(path)}; looked for{expected}")


def _matching_format(path: Path) -> str | None:
    for name, source in SOURCES.items():
        if source.detect(path):
            return name
    return None


def _hint(path: Path) -> str:
    """Where the data may be instead: one folder further down, or inside an archive."""
    if path.suffix in (".gz", ".tgz", ".tar", ".zip"):
        return " (unpack the archive and give its folder)"
    if path.is_dir():
        for folder in sorted(p for p in path.iterdir() if p.is_dir()):
            if name := _matching_format(folder):
                return f" (but its folder '{folder.name}' is {name}: give that)"
    return ""
