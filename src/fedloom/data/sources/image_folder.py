"""One folder of images per class: train/CLASS/* and test/CLASS/* (or val/), or CLASS/* alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from fedloom.core.spec import Param
from fedloom.data.dataset import Dataset
from fedloom.data.sources import holdout
from fedloom.data.sources.build import Name, RawSplit, build_dataset, raw_split
from fedloom.data.sources.errors import data_error, folder_listing, shortened
from fedloom.data.sources.image_files import all_grey, image_files_in, load_images

LOOKS_FOR = (
    "train/CLASS/*.png (or .jpg ...) with test/ or val/ next to it, or CLASS/*.png, in a folder"
)
TEST_FOLDERS = ("test", "val")

Size = Annotated[
    int | None,
    Param(
        "side in pixels to which every image is cropped and scaled; none requires one size", low=1
    ),
]
FilesByClass = dict[str, list[Path]]


def detect(path: Path) -> bool:
    """Whether the folder, or its folder train, has a folder with images."""
    if not path.is_dir():
        return False
    train = path / "train"
    return bool(_files_by_class(train if train.is_dir() else path))


def read(
    path: Path, name: Name = None, size: Size = None, test_share: holdout.TestShare = 0.2
) -> Dataset:
    """The data set of a folder of images by class; grey if all images are, else RGB."""
    train_folder, test_folder = _split_folders(path)
    train_files = _required_files(train_folder)
    test_files = {} if test_folder is None else _required_files(test_folder)
    classes = sorted(train_files)
    if unknown := sorted(set(test_files) - set(classes)):
        found = f"the class {shortened(unknown, 3)}"
        expected = f"those of {train_folder}: {shortened(classes)}"
        raise data_error(test_folder, found, expected, "use the same classes in both splits")
    trees = (train_files, test_files)
    grey = all_grey([file for tree in trees for files in tree.values() for file in files])
    channels = 1 if grey else 3
    train = _read_split(train_folder, train_files, classes, channels, size)
    if test_folder is None:
        train, test = holdout.split_off_test(train, test_share)
        test_made = holdout.description(test_share, has_users=False)
    else:
        test = _read_split(test_folder, test_files, classes, channels, size)
        test_made = f"the folder {test_folder.name}"
    about = {"format": "image_folder", "source": str(path), "test split": test_made}
    if size is not None:
        about["images"] = f"cropped at the centre, scaled to {size} x {size}"
    return build_dataset(name or path.name, "image", train, test, about, classes)


def _split_folders(path: Path) -> tuple[Path, Path | None]:
    """The folders of the training and the test split; without train/, the folder itself."""
    train = path / "train"
    if not train.is_dir():
        return path, None
    for name in TEST_FOLDERS:
        if (path / name).is_dir():
            return train, path / name
    raise data_error(
        path,
        folder_listing(path),
        "a folder test or val next to train",
        "add it, or give the folder train to hold out a test split",
    )


def _required_files(folder: Path) -> FilesByClass:
    files = _files_by_class(folder)
    if not files:
        expected, remedy = "one folder of images per class", "sort the images into such folders"
        raise data_error(folder, folder_listing(folder), expected, remedy)
    return files


def _files_by_class(folder: Path) -> FilesByClass:
    files = {}
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and not inner.name.startswith("."):
            files[inner.name] = image_files_in(inner)
    return {name: images for name, images in files.items() if images}


def _read_split(
    folder: Path,
    files_by_class: Mapping[str, list[Path]],
    classes: Sequence[str],
    channels: int,
    size: int | None,
) -> RawSplit:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = files_by_class.get(name, [])
        files += images
        labels += [label] * len(images)
    return raw_split(load_images(files, channels, size), labels, folder)
