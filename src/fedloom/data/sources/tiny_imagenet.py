"""Tiny-ImageNet as its authors pack it: train/WNID/images/*.JPEG, val/images with val_annotations.txt, wnids.txt, words.txt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedloom.data.dataset import Dataset
from fedloom.data.sources.build import Name, Part, dataset, part
from fedloom.data.sources.constants import CONSTANTS
from fedloom.data.sources.errors import bad, listing, some
from fedloom.data.sources.image_files import pictures_in, stack

LOOKS_FOR = (
    "wnids.txt, train/WNID/images/*.JPEG and val/val_annotations.txt in a folder (Tiny-ImageNet)"
)


def detect(path: Path) -> bool:
    """Whether the folder lists its classes in wnids.txt."""
    return (path / "wnids.txt").is_file()


def read(path: Path, name: Name = None) -> Dataset:
    """The data set of the folder tiny-imagenet-200; its val split is the test split, as everybody uses it."""
    wnids = (path / "wnids.txt").read_text(encoding="utf-8").split()
    if not wnids:
        raise bad(path / "wnids.txt", "no class", "one WNID a line", "download the set again")
    about = {"format": "tiny_imagenet", "source": str(path), "test split": "the official val split"}
    train, test = _train(path / "train", wnids), _val(path / "val", wnids)
    return dataset(
        name or "tiny-imagenet",
        "image",
        train,
        test,
        about,
        _words(path, wnids),
        CONSTANTS["tiny-imagenet"],
    )


def _train(folder: Path, wnids: Sequence[str]) -> Part:
    files, labels = [], []
    for label, wnid in enumerate(wnids):
        images = folder / wnid / "images"
        found = pictures_in(images) if images.is_dir() else []
        if not found:
            raise bad(
                images,
                listing(images),
                f"the pictures of class {wnid} of wnids.txt",
                "unpack the set again",
            )
        files += found
        labels += [label] * len(found)
    return part(stack(files, channels=3), labels, folder)


def _val(folder: Path, wnids: Sequence[str]) -> Part:
    notes = folder / "val_annotations.txt"
    if not notes.is_file():
        raise bad(
            folder, listing(folder), "val_annotations.txt and images/", "unpack the set again"
        )
    label = {wnid: i for i, wnid in enumerate(wnids)}
    rows = [
        line.split("\t")[:2]
        for line in notes.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    if wrong := [row for row in rows if len(row) < 2 or row[1] not in label]:
        expected = "a file name and a WNID of wnids.txt, with a tab between"
        raise bad(notes, f"the line '{some(wrong[0])}'", expected, "unpack the set again")
    files = [folder / "images" / file for file, _ in rows]
    if absent := [f.name for f in files if not f.is_file()]:
        raise bad(
            folder / "images",
            f"no {some(absent, 3)}",
            f"all {len(files)} pictures of {notes.name}",
            "unpack the set again",
        )
    if not files:
        raise bad(notes, "no line", "a picture a line", "unpack the set again")
    return part(stack(files, channels=3), [label[wnid] for _, wnid in rows], folder)


def _words(path: Path, wnids: Sequence[str]) -> tuple[str, ...]:
    """The class names of words.txt, else the WNIDs."""
    file = path / "words.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return tuple(words.get(wnid, wnid).strip() for wnid in wnids)
