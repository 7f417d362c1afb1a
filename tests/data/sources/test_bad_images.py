"""Invalid paths and image files, and the error message of each."""

from __future__ import annotations

import gzip
import sys

import numpy as np
import pytest

from fedloom.core.errors import UserError
from fedloom.data.sources import read

ZEROS = np.zeros((2, 2, 2), np.uint8)


def idx(file, data, packed=False):
    """Four good files, one of them replaced or removed."""

    def make(w, p):
        w.idx(p, (ZEROS, [0, 1]), (ZEROS, [0, 1]), packed)
        (p / file).unlink()
        if data is not None:
            (p / file).write_bytes(data)
        return p

    return make


def head(magic, *sizes):
    return np.array([magic, *sizes], ">u4").tobytes()


def files(*names, data=b"x"):
    def make(w, p):
        for name in names:
            (p / name).parent.mkdir(parents=True, exist_ok=True)
            (p / name).write_bytes(data)
        return p

    return make


def cifar10(**batches):
    return lambda w, p: w.cifar10(p, batches)


def cifar100(w, p):
    return w.cifar100(p, train=[1, 0], test=[2])


def named_badly(w, p):
    (cifar100(w, p) / "fine_label_names.txt").write_text("apple\n")
    return p


def one_too_high(w, p):
    return cifar100(w, p / "c").parent


PATHS = {
    "missing": (lambda w, p: p / "nowhere", ("no file or folder", "nowhere"), {}),
    "format": (cifar100, ("no data format 'cifer'; did you mean 'cifar'",), {"format": "cifer"}),
    "option": (cifar100, ("'cifar': no parameter 'nam'; did you mean 'name'",), {"nam": "x"}),
    "foreign": (
        files("a.txt"),
        ("no known data format at", "looked for", "\n  idx: train-images", "\n  table: a .csv"),
        {},
    ),
    "one too high": (one_too_high, ("(but its folder 'c' is cifar: give that)",), {}),
    "archive": (
        lambda w, p: files("c.tar.gz")(w, p) / "c.tar.gz",
        ("unpack the archive and give its folder",),
        {},
    ),
}

TRAIN_X, TRAIN_Y = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_X, TEST_Y = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
IDX = {
    "no test labels": (
        idx(TEST_Y, None),
        ("expected t10k-labels-idx1-ubyte", "add the missing file"),
        {},
    ),
    "magic": (
        idx(TRAIN_X, head(0x801, 2) + bytes(16)),
        ("magic number 0x00000801, expected 0x00000803",),
        {},
    ),
    "truncated": (
        idx(TRAIN_X, head(0x803, 2, 2, 2) + bytes(7)),
        ("found 7 bytes of values, expected 8 for shape (2, 2, 2)",),
        {},
    ),
    "empty": (idx(TRAIN_Y, b""), ("found 0 bytes", "a header of 8 bytes", "download it again"), {}),
    "no samples": (
        idx(TEST_X, head(0x803, 0, 2, 2)),
        ("found no samples, expected at least one",),
        {},
    ),
    "lengths": (
        idx(TRAIN_Y, head(0x801, 1) + b"\0"),
        ("found 2 samples and labels of shape (1,)",),
        {},
    ),
    "test of another size": (
        idx(TEST_X, head(0x803, 2, 1, 1) + b"ab"),
        ("of shape (1, 1, 1), expected (1, 2, 2)",),
        {},
    ),
    "sparse": (
        idx(TRAIN_Y, head(0x801, 2) + b"\0\xc8"),
        ("labels up to 200 but only 2 distinct ones", "class numbers 0 to 1"),
        {},
    ),
    "cut gzip": (
        idx(
            f"{TEST_X}.gz",
            gzip.compress(bytes([0, 0, 8, 3, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 3, *range(81)]))[:60],
            True,
        ),
        ("found a damaged gzip file",),
        {},
    ),
    "no gzip": (idx(f"{TEST_X}.gz", b"hello", True), ("found a damaged gzip file",), {}),
}

CIFAR = {
    "pickled 10": (
        files("data_batch_1", "test_batch"),
        ("pickled python version", "use the binary version (cifar-10-bin"),
        {},
    ),
    "pickled 100": (
        files("train", "test", "meta"),
        ("pickled python version", "cifar-100-binary.tar.gz"),
        {},
    ),
    "record": (
        files("data_batch_1.bin", "test_batch.bin"),
        ("found 1 bytes, expected a multiple of 3073",),
        {},
    ),
    "empty": (
        files("train.bin", "test.bin", data=b""),
        ("found 0 bytes, expected a multiple of 3074",),
        {},
    ),
    "no test": (
        cifar10(data_batch_1=[1]),
        ("expected test_batch.bin", "add the missing split"),
        {},
    ),
    "no train": (
        cifar10(test_batch=[1]),
        ("expected data_batch_*.bin", "add the missing split"),
        {},
    ),
    "label": (
        cifar10(data_batch_1=[1, 11], test_batch=[1]),
        ("found label 11 in record 1, expected 0 to 9",),
        {},
    ),
    "names": (named_badly, ("found 1 class names, expected 100",), {}),
    "nothing there": (
        files("a.csv"),
        ("found a.csv, expected data_batch_1.bin",),
        {"format": "cifar"},
    ),
}


def tiny(file, text):
    """A good set with one file rewritten or removed."""

    def make(w, p):
        w.tiny(p)
        (p / file).unlink()
        if text is not None:
            (p / file).write_text(text, encoding="latin-1")
        return p

    return make


NOTES = "val/val_annotations.txt"
TINY = {
    "no folder": (tiny("wnids.txt", "n01\nn77"), ("n77", "expected the images of class n77"), {}),
    "no classes": (tiny("wnids.txt", ""), ("found no class, expected one WNID per line",), {}),
    "no notes": (tiny(NOTES, None), ("expected val_annotations.txt",), {}),
    "empty notes": (tiny(NOTES, "\n"), ("found no line",), {}),
    "strange note": (tiny(NOTES, "a.png n01"), ("the line 'a.png n01'",), {}),
    "image missing": (
        tiny("val/images/val_1.png", None),
        ("found no val_1.png, expected all 2 images",),
        {},
    ),
    "not UTF-8": (tiny("words.txt", "n01\tcaf\xe9"), ("a text file in it is not UTF-8",), {}),
    "forced": (
        files("a.txt"),
        ("cannot read", "wnids.txt: No such file"),
        {"format": "tiny_imagenet"},
    ),
}


def images(*sizes, under=""):
    def make(w, p):
        for i, size in enumerate(sizes):
            w.picture(p / under / "cat" / f"{i}.png", (0, 0, 0), size)
        return p

    return make


def strange_class(w, p):
    w.picture(p / "val" / "dog" / "1.png", (0, 0, 0))
    return images((4, 4), under="train")(w, p)


def cut_short(w, p):
    file = images((40, 40))(w, p) / "cat" / "0.png"
    file.write_bytes(file.read_bytes()[:60])
    return p


FOLDER = {
    "sizes": (
        images((4, 4), (4, 6)),
        ("1.png: found an image of 4 x 6 pixels, expected 4 x 4", "set size=N"),
        {},
    ),
    "size option": (images((4, 4)), ("size=0 must be at least 1",), {"size": 0}),
    "no image": (
        files("train/cat/1.png", "test/cat/1.png"),
        ("found no readable image", "replace or delete the file"),
        {},
    ),
    "cut short": (cut_short, ("0.png: found a damaged image",), {}),
    "no test": (
        images((4, 4), under="train"),
        ("expected a folder test or val next to train",),
        {},
    ),
    "strange class": (strange_class, ("found the class dog, expected those of", "cat"), {}),
    "too few": (
        images((4, 4)),
        ("1 samples, of which a share of 0.2 leaves no test sample", "raise test_share"),
        {},
    ),
    "unsorted": (
        files("a.png"),
        ("found a.png, expected one folder of images per class",),
        {"format": "image_folder"},
    ),
}


@pytest.mark.parametrize("case", PATHS)
def test_paths(case, rejects):
    rejects(*PATHS[case])


@pytest.mark.parametrize("case", IDX)
def test_idx(case, rejects):
    rejects(*IDX[case])


@pytest.mark.parametrize("case", CIFAR)
def test_cifar(case, rejects):
    rejects(*CIFAR[case])


@pytest.mark.parametrize("case", TINY)
def test_tiny_imagenet(case, rejects):
    rejects(*TINY[case])


@pytest.mark.parametrize("case", FOLDER)
def test_image_folder(case, rejects):
    rejects(*FOLDER[case])


def test_without_pillow_the_extra_is_named(write, tmp_path, monkeypatch):
    folder = images((4, 4))(write, tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match=r'needs Pillow, .* pip install "fedloom\[images\]"'):
        read(folder)
