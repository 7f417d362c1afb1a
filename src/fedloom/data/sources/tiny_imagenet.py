"""Tiny-ImageNet as its authors pack it.

Files: train/WNID/images/*.JPEG, val/images with val_annotations.txt, wnids.txt, words.txt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedloom.data.dataset import Dataset
from fedloom.data.sources.build import Name, RawSplit, build_dataset, raw_split
from fedloom.data.sources.constants import CONSTANTS
from fedloom.data.sources.errors import data_error, folder_listing, shortened
from fedloom.data.sources.image_files import image_files_in, load_images

LOOKS_FOR = (
    "wnids.txt, train/WNID/images/*.JPEG and val/val_annotations.txt in a folder (Tiny-ImageNet)"
)
UNPACK = "unpack the set again"


def detect(path: Path) -> bool:
    """Whether the folder lists its classes in wnids.txt."""
    return (path / "wnids.txt").is_file()


def read(path: Path, name: Name = None) -> Dataset:
    """The data set of the folder tiny-imagenet-200; its val split is the test split, as usual."""
    wnids = (path / "wnids.txt").read_text(encoding="utf-8").split()
    if not wnids:
        raise data_error(path / "wnids.txt", "no class", "one WNID per line", UNPACK)
    about = {"format": "tiny_imagenet", "source": str(path), "test split": "the official val split"}
    return build_dataset(
        name or "tiny-imagenet",
        "image",
        _read_train(path / "train", wnids),
        _read_val(path / "val", wnids),
        about,
        _class_names(path, wnids),
        CONSTANTS["tiny-imagenet"],
    )


def _read_train(folder: Path, wnids: Sequence[str]) -> RawSplit:
    files: list[Path] = []
    labels: list[int] = []
    for label, wnid in enumerate(wnids):
        images = folder / wnid / "images"
        class_files = image_files_in(images) if images.is_dir() else []
        if not class_files:
            expected = f"the images of class {wnid} of wnids.txt"
            raise data_error(images, folder_listing(images), expected, UNPACK)
        files += class_files
        labels += [label] * len(class_files)
    return raw_split(load_images(files, channels=3), labels, folder)


def _read_val(folder: Path, wnids: Sequence[str]) -> RawSplit:
    annotations = folder / "val_annotations.txt"
    if not annotations.is_file():
        expected = "val_annotations.txt and images/"
        raise data_error(folder, folder_listing(folder), expected, UNPACK)
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    files, labels = [], []
    for line in annotations.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        fields = line.split("\t")[:2]
        if len(fields) < 2 or fields[1] not in label_of:
            expected = "a file name and a WNID of wnids.txt, separated by a tab"
            raise data_error(annotations, f"the line '{shortened(fields)}'", expected, UNPACK)
        files.append(folder / "images" / fields[0])
        labels.append(label_of[fields[1]])
    _check_files(files, annotations)
    return raw_split(load_images(files, channels=3), labels, folder)


def _check_files(files: Sequence[Path], annotations: Path) -> None:
    if not files:
        raise data_error(annotations, "no line", "one image per line", UNPACK)
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        found, expected = f"no {shortened(missing, 3)}", f"all {len(files)} images of"
        raise data_error(files[0].parent, found, f"{expected} {annotations.name}", UNPACK)


def _class_names(path: Path, wnids: Sequence[str]) -> tuple[str, ...]:
    """The class names of words.txt, else the WNIDs."""
    file = path / "words.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return tuple(words.get(wnid, wnid).strip() for wnid in wnids)
