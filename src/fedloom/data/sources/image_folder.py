"""Pictures sorted into folders by class: train/CLASS/* with test/CLASS/* or val/CLASS/*, or CLASS/* alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from fedloom.core.spec import Param
from fedloom.data.dataset import Dataset
from fedloom.data.sources import holdout
from fedloom.data.sources.build import Name, Part, dataset, part
from fedloom.data.sources.errors import bad, listing, some
from fedloom.data.sources.image_files import all_grey, pictures_in, stack

LOOKS_FOR = (
    "train/CLASS/*.png (or .jpg ...) with test/ or val/ beside it, or CLASS/*.png, in a folder"
)
TESTS = ("test", "val")

Size = Annotated[
    int | None,
    Param("side to which every picture is cut and scaled; none needs one size throughout", low=1),
]
Tree = dict[str, list[Path]]


def detect(path: Path) -> bool:
    """Whether the folder, or its folder train, has a folder with pictures."""
    return path.is_dir() and bool(_tree(path / "train" if (path / "train").is_dir() else path))


def read(
    path: Path, name: Name = None, size: Size = None, test_share: holdout.TestShare = 0.2
) -> Dataset:
    """The data set of a folder of pictures by class; grey if all pictures are, else RGB."""
    trees = _trees(path)
    classes = sorted(trees[0][1])
    if strange := sorted(set(trees[-1][1]) - set(classes)):
        raise bad(
            trees[-1][0],
            f"the class {some(strange, 3)}",
            f"those of {trees[0][0]}: {some(classes)}",
            "make both splits alike",
        )
    grey = all_grey([file for _, tree in trees for files in tree.values() for file in files])
    parts = [_part(folder, tree, classes, 1 if grey else 3, size) for folder, tree in trees]
    made = (
        holdout.said(test_share, users=False)
        if len(parts) == 1
        else f"the folder {trees[-1][0].name}"
    )
    about = {"format": "image_folder", "source": str(path), "test split": made}
    about |= {"pictures": f"centre cut, scaled to {size} x {size}"} if size is not None else {}
    train, test = parts if len(parts) == 2 else holdout.split(parts[0], test_share)
    return dataset(name or path.name, "image", train, test, about, classes)


def _trees(path: Path) -> list[tuple[Path, Tree]]:
    """The folders with their pictures by class: train and test, or one for both."""
    if not (path / "train").is_dir():
        return [(path, _classes(path))]
    test = next((path / t for t in TESTS if (path / t).is_dir()), None)
    if test is None:
        raise bad(
            path,
            listing(path),
            "a folder test or val beside train",
            "add it, or give the folder train to have one made",
        )
    return [(folder, _classes(folder)) for folder in (path / "train", test)]


def _classes(folder: Path) -> Tree:
    tree = _tree(folder)
    if not tree:
        raise bad(
            folder,
            listing(folder),
            "folders of pictures, one a class",
            "sort the pictures into folders by class",
        )
    return tree


def _tree(folder: Path) -> Tree:
    found = {
        c.name: pictures_in(c)
        for c in sorted(folder.iterdir())
        if c.is_dir() and not c.name.startswith(".")
    }
    return {name: files for name, files in found.items() if files}


def _part(
    folder: Path,
    tree: Mapping[str, list[Path]],
    classes: Sequence[str],
    channels: int,
    size: int | None,
) -> Part:
    files = [file for c in classes for file in tree.get(c, ())]
    labels = [label for label, c in enumerate(classes) for _ in tree.get(c, ())]
    return part(stack(files, channels, size), labels, folder)
