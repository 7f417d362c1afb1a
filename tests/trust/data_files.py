"""Mutated data files and mutated stored data sets, and what fedloom makes of them.

attack         valid files of every format, damaged, then added and loaded
attack_stored  stored data sets, damaged, then loaded, described and checked

Both count outcomes. "traceback" and "silently wrong" must be 0.
"""

from __future__ import annotations

import random
import shutil
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from data import writers
from fedloom.core.errors import UserError
from fedloom.core.sealed_json import seal, unseal
from fedloom.data import listing, store
from fedloom.data.dataset import Dataset
from fedloom.data.identity import data_identity
from fedloom.data.sources.checks import problems_and_notes
from trust import mutations
from trust.outcomes import ACCEPTED, FORGED, IDENTICAL, REJECTED, TRACEBACK, WRONG

Files = dict[str, bytes]  # by their path in the folder of a data set
Failures = list[str] | None


PIXELS = np.random.default_rng(1).integers(0, 255, (20, 4, 4)).astype(np.uint8)
LABELS = np.arange(20) % 2
USERS = np.array([f"u{i // 5}" for i in range(20)])
TABLE = [
    [i, f"{i / 7:.3f}", "abc"[i % 3], None if i == 4 else i % 5, "ny"[i % 2]] for i in range(30)
]
HEADER = ["a", "b", "c", "d", "y"]


def _npz(folder: Path) -> None:
    x = PIXELS.reshape(20, 16) / 255
    writers.npz(folder / "train.npz", x=x, y=LABELS, users=USERS, classes=["no", "yes"])
    writers.npz(folder / "test.npz", x=x[:6], y=LABELS[:6], users=USERS[:6])


def _pictures(folder: Path) -> None:
    for i, ending in enumerate(("png", "png", "png", "jpg", "bmp", "gif", "ppm", "tiff")):
        for name in ("cat", "dog"):
            writers.picture(folder / name / f"{i}.{ending}", (i * 9, 30, 60), (5, 5))


def _leaf_images(folder: Path) -> None:
    samples = {
        user: (PIXELS[i : i + 5].reshape(5, 16).tolist(), LABELS[i : i + 5].tolist())
        for i, user in enumerate(("ann", "bob", "eve"))
    }
    writers.leaf(folder / "all_data.json", samples)


def _leaf_text(folder: Path) -> None:
    for split in ("train", "test"):
        samples = {user: (["abcd", "bcde", "cdea"], ["e", "a", "b"]) for user in ("ann", "bob")}
        writers.leaf(folder / split / "data.json", samples)


def _clients(folder: Path) -> None:
    for client in ("north", "south"):
        writers.table(folder / f"{client}.csv", HEADER, TABLE)


FORMATS: dict[str, Callable[[Path], object]] = {
    "idx": lambda f: writers.idx(f, (PIXELS, LABELS), (PIXELS[:4], LABELS[:4]), packed=False),
    "idx.gz": lambda f: writers.idx(f, (PIXELS, LABELS), (PIXELS[:4], LABELS[:4])),
    "npz": lambda f: writers.npz(f / "data.npz", x=PIXELS, y=LABELS, users=USERS),
    "npz folder": _npz,
    "csv": lambda f: writers.table(f / "t.csv", HEADER, TABLE),
    "csv of clients": _clients,
    "parquet": lambda f: writers.table(f / "t.parquet", HEADER, TABLE),
    "image folder": _pictures,
    "leaf images": _leaf_images,
    "leaf text": _leaf_text,
    "cifar10": lambda f: writers.cifar10(f, {"data_batch_1": [0, 1, 9], "test_batch": [3]}),
    "cifar100": lambda f: writers.cifar100(f, train=[1, 99], test=[5]),
    "tiny_imagenet": lambda f: writers.tiny(f),
}


def attack(count: int, seed: int, folder: Path, failures: Failures = None) -> Counter[str]:
    """Damage `count` data sets on their way in; accepted, rejected, or one of the bad outcomes.

    folder: an empty or new folder for the files. failures: receives a report of each bad outcome.
    """
    originals = {name: _made(make, folder / "original") for name, make in FORMATS.items()}
    outcomes: Counter[str] = Counter()
    for case in range(count):
        rng = random.Random(f"{seed} {case}")
        name = rng.choice(list(originals))
        files = mutated(rng, originals[name])
        path = _written(files, folder / "files")
        single = [p for p in path.iterdir() if p.suffix in (".npz", ".csv", ".parquet", ".json")]
        if len(single) == 1 and len(files) == 1:
            path = single[0]
        about = f"seed {seed}, case {case}: {name}"
        outcomes[_outcome(lambda p=path: _add(p, folder / "home"), about, failures)] += 1
    return outcomes


def attack_stored(count: int, seed: int, folder: Path, failures: Failures = None) -> Counter[str]:
    """Damage `count` stored data sets; identical, rejected, forged, or a bad outcome.

    Forged are those whose info.json was changed together with its checksum, and that can be read:
    a checksum without a key is no signature.
    """
    originals = list(_stored(folder))
    outcomes: Counter[str] = Counter()
    for case in range(count):
        rng = random.Random(f"{seed} {case}")
        dataset, files = rng.choice(originals)
        is_forged = rng.random() < 0.2
        files = _forged(rng, files) if is_forged else mutated(rng, files)
        _written(files, folder / "home" / "d")
        about = f"seed {seed}, case {case}: {dataset.about['format']}"
        home, compared = folder / "home", None if is_forged else dataset
        outcome = _outcome(lambda h=home, c=compared: _load(h, c), about, failures)
        outcomes[outcome] += 1
    return outcomes


def mutated(rng: random.Random, files: Files) -> Files:
    """The files with one of them, or more, damaged, exchanged or left out."""
    changed, names = dict(files), list(files)
    for _ in range(rng.choice((1, 1, 1, 2))):
        a, b = rng.choice(names), rng.choice(names)
        kind = rng.random()
        if kind < 0.05:
            changed.pop(a, None)
        elif kind < 0.12:
            changed[a], changed[b] = files[b], files[a]
        else:
            changed[a] = mutations.of_file(rng, Path(a).suffix, files[a])
    return changed


def _forged(rng: random.Random, files: Files) -> Files:
    """info.json with another value in one place, and the checksum that fits."""
    info = unseal(files["info.json"])
    assert info is not None
    values = [
        None,
        [],
        {},
        "",
        "../x",
        -1,
        1e308,
        True,
        ["a"],
        [0.5],
        {"train": {}},
        "image",
        "text",
    ]
    at, steps = info, rng.choice((1, 1, 2, 3, 4))
    for _ in range(steps - 1):
        below = [v for v in at.values() if isinstance(v, dict) and v]
        at = rng.choice(below) if below else at
    at[rng.choice(list(at))] = rng.choice(values)
    return {**files, "info.json": seal(info)}


def _outcome(act: Callable[[], str], about: str, failures: Failures) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = act()
    except UserError:
        return REJECTED
    except Exception:
        outcome = TRACEBACK
        about = f"{about}\n{traceback.format_exc()}"
    if outcome in (TRACEBACK, WRONG) and failures is not None:
        failures.append(f"{outcome}: {about}")
    return outcome


def _add(path: Path, home: Path) -> str:
    shutil.rmtree(home, ignore_errors=True)
    added = store.add("d", path, root=home)
    loaded = store.load("d", home)
    problems_and_notes(loaded)
    listing.describe("d", home)
    same = data_identity(loaded) == data_identity(added)
    return ACCEPTED if same and is_consistent(loaded) else WRONG


def is_consistent(dataset: Dataset) -> bool:
    """Whether a model can be trained on it: shapes, labels, users and values fit together."""
    kinds = {"image": torch.uint8, "text": torch.int64, "table": torch.float32}
    return all(
        len(split.x) == len(split.y) > 0
        and tuple(split.x.shape[1:]) == dataset.shape
        and split.x.dtype == kinds[dataset.kind]
        and bool(torch.isfinite(split.x.float()).all())
        and 0 <= int(split.y.min()) <= int(split.y.max()) < len(dataset.classes)
        and (split.users is None or int(split.users.max()) < len(dataset.users))
        for split in (dataset.train, dataset.test)
    )


def _load(home: Path, original: Dataset | None) -> str:
    """Load, describe and check; None as original: anything but a traceback is right."""
    try:
        listing.describe("d", home)
        loaded = store.load("d", home)
    finally:
        if "d" in listing.names(home):
            store.check("d", home)
    if original is None:
        return FORGED
    facts = [(d.name, d.about, data_identity(d)) for d in (loaded, original)]
    return IDENTICAL if facts[0] == facts[1] else WRONG


def _stored(folder: Path) -> list[tuple[Dataset, Files]]:
    """One stored data set of images with users, one table and one text."""
    stored = []
    for name in ("npz", "csv", "leaf text"):
        home = folder / "stored"
        _made(FORMATS[name], folder / "original", keep=True)
        (path,) = [folder / "original"] if name == "leaf text" else (folder / "original").iterdir()
        dataset = store.add("d", path, root=home, replace=True)
        stored.append((dataset, _read(home / "d")))
        shutil.rmtree(folder / "original")
    return stored


def _made(make: Callable[[Path], object], folder: Path, keep: bool = False) -> Files:
    folder.mkdir(parents=True)
    make(folder)
    files = _read(folder)
    if not keep:
        shutil.rmtree(folder)
    return files


def _read(folder: Path) -> Files:
    found = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


def _written(files: Files, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder
