"""Named data sets on disk."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedloom.core.errors import UserError
from fedloom.core.sealed_json import seal, unseal
from fedloom.data import fashion, listing, store
from fedloom.data.sources import from_torch


@pytest.fixture
def digits(write, tmp_path):
    """Twenty different images of two classes and two users."""
    x = np.arange(20 * 9, dtype=np.uint8).reshape(20, 3, 3)
    return write.npz(tmp_path / "digits.npz", x=x, y=np.arange(20) % 2, users=np.arange(20) // 10)


def same(a, b):
    tensors = [
        (getattr(getattr(d, s), f))
        for d in (a, b)
        for s in ("train", "test")
        for f in ("x", "y", "users")
    ]
    assert all(
        torch.equal(t, u) if t is not None else u is None
        for t, u in zip(tensors[:6], tensors[6:], strict=True)
    )
    fields = ("name", "kind", "classes", "mean", "std", "users", "about")
    assert [getattr(a, f) for f in fields] == [getattr(b, f) for f in fields]


def assert_tidy(root, *names):
    """Complete data sets of these names, and nothing else but the lock."""
    assert sorted(p.name for p in root.iterdir()) == [".lock", *names]
    for name in names:
        files = [p.name for p in sorted((root / name).iterdir())]
        assert [re.sub("-[0-9a-f]{12}", "", f) for f in files] == [
            "info.json",
            "test.safetensors",
            "train.safetensors",
        ]


def test_round_trip(digits, tmp_path):
    root = tmp_path / "root"
    added = store.add("my-digits.1", digits, options={"test_share": 0.5}, root=root)
    assert added.name == "my-digits.1"
    assert len(added.test) == 10
    same(store.load("my-digits.1", root), added)
    assert store.names(root) == ["fashion-mnist", "my-digits.1"]
    assert store.check("my-digits.1", root) == []
    assert_tidy(root, "my-digits.1")
    info = json.loads((root / "my-digits.1" / "info.json").read_text())
    assert info["files"]["train"]["tensors"]["x"] == ["uint8", 10, 1, 3, 3]


def test_text_and_table_round_trip(write, tmp_path):
    root = tmp_path / "root"
    text = write.leaf(
        tmp_path / "all_data.json", {"a": (["ab", "ba", "äb", "b\n", "aa"], list("abäab"))}
    )
    table = write.table(tmp_path / "t.csv", ["x", "y"], [[i, i % 2] for i in range(20)])
    for name, path in (("text", text), ("table", table)):
        same(store.add(name, path, root=root), store.load(name, root))
    assert store.load("text", root).classes == ("\n", "a", "b", "ä")


RECORDS = [(torch.full((1, 2, 2), i, dtype=torch.uint8), i % 2) for i in range(10)]


def test_a_torch_dataset_can_be_stored(tmp_path):
    made = from_torch(RECORDS, name="mine")
    store.save(made, tmp_path)
    same(store.load("mine", tmp_path), made)


def test_the_packaged_set_is_always_available(tmp_path):
    same(store.load("fashion-mnist", tmp_path), fashion.load())
    assert store.check("fashion-mnist", tmp_path) == []


def test_location_of_the_store(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLOOM_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "b"))
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert store.home(tmp_path) == tmp_path
    assert store.home() == tmp_path / "a" / "data"
    monkeypatch.delenv("FEDLOOM_HOME")
    assert store.home() == tmp_path / "b" / "fedloom" / "data"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert store.home() == tmp_path / "c" / ".local" / "share" / "fedloom" / "data"


def test_unknown_names(digits, tmp_path):
    store.add("digits", digits, root=tmp_path / "r")
    with pytest.raises(
        UserError,
        match=r"no data set 'digit'; did you mean 'digits'\?.*"
        r"add it with: fedloom data add NAME --from PATH",
    ):
        store.load("digit", tmp_path / "r")
    with pytest.raises(UserError, match="no data set 'digit'"):
        store.check("digit", tmp_path / "r")
    with pytest.raises(UserError, match="no data set 'digit'"):
        store.remove("digit", tmp_path / "r")


@pytest.mark.parametrize(
    "name", ["", "..", ".hidden", "a/b", "a b", "ä", "x" * 101, "fashion-mnist", "a\n"]
)
def test_invalid_names_are_rejected(name, digits, tmp_path):
    for act in (
        lambda: store.add(name, digits, root=tmp_path / "r"),
        lambda: store.remove(name, tmp_path / "r"),
    ):
        with pytest.raises(UserError, match="choose another name"):
            act()


def test_a_data_set_is_overwritten_only_with_replace(digits, write, tmp_path):
    root = tmp_path / "r"
    store.add("d", digits, root=root)
    other = write.npz(tmp_path / "o.npz", x=np.zeros((10, 2, 2)), y=np.arange(10) % 2)
    with pytest.raises(UserError, match=r"'d' already exists, .* replace=True"):
        store.add("d", other, root=root)
    assert store.load("d", root).shape == (1, 3, 3)
    store.add("d", other, root=root, replace=True)
    assert store.load("d", root).shape == (1, 2, 2)
    assert_tidy(root, "d")


def test_a_folder_that_is_not_a_data_set_is_never_replaced_or_removed(digits, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("dear")
    with pytest.raises(UserError, match="is not a data set of fedloom"):
        store.add("letters", digits, root=tmp_path, replace=True)
    with pytest.raises(UserError, match="no data set 'letters'"):
        store.remove("letters", tmp_path)
    assert (tmp_path / "letters" / "dear.txt").exists()


@pytest.mark.parametrize("moment", ["save_file", "sync", "put_in_place"])
def test_a_failed_write_leaves_the_old_set(digits, tmp_path, monkeypatch, moment):
    root = tmp_path / "r"
    before = store.add("d", digits, root=root)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, moment, full)
    with pytest.raises(UserError, match=r"cannot write data set 'd' .*No space left on device"):
        store.save(before, root, replace=True)
    monkeypatch.undo()
    same(store.load("d", root), before)
    assert_tidy(root, "d")


@pytest.mark.parametrize("refused", ["train", "test", "info.json"])
def test_a_failed_replacement_leaves_the_old_set(digits, tmp_path, monkeypatch, refused):
    root = tmp_path / "r"
    before = store.add("d", digits, root=root)
    move = type(root).replace

    def refuse(self, target):
        if self.name.startswith(refused):
            raise OSError(5, "Input/output error")
        return move(self, target)

    monkeypatch.setattr(type(root), "replace", refuse)
    with pytest.raises(UserError, match="Input/output error"):
        store.save(from_torch(RECORDS, name="d"), root, replace=True)
    same(store.load("d", root), before)
    assert_tidy(root, "d")


def test_remove(digits, tmp_path):
    store.add("d", digits, root=tmp_path / "r")
    store.remove("d", tmp_path / "r")
    assert store.names(tmp_path / "r") == ["fashion-mnist"]


def test_a_set_that_is_replaced_while_it_is_read_is_read_again(digits, tmp_path, monkeypatch):
    store.add("d", digits, root=tmp_path)
    new, read = from_torch(RECORDS, name="d"), store.read_info

    def replaced_after(folder):
        info = read(folder)
        monkeypatch.undo()
        store.save(new, tmp_path, replace=True)
        return info

    monkeypatch.setattr(store, "read_info", replaced_after)
    same(store.load("d", tmp_path), new)


def flip(file):
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def split(folder, name):
    (file,) = folder.glob(f"{name}-*.safetensors")
    return file


def forge(folder, **changes):
    """Change entries of info.json and its checksum with them."""
    file = folder / "info.json"
    file.write_bytes(seal(unseal(file.read_bytes()) | changes))


BROKEN = "info.json is damaged (its content does not match its checksum)"
DAMAGE = {
    "a flipped bit": (
        lambda d: flip(split(d, "train")),
        ".safetensors is damaged (its sha256",
    ),
    "a cut file": (
        lambda d: os.truncate(split(d, "test"), 50),
        ".safetensors is damaged (its sha256",
    ),
    "a missing file": (lambda d: split(d, "test").unlink(), "No such file"),
    "no JSON": (lambda d: (d / "info.json").write_text("{"), BROKEN),
    "nothing": (lambda d: (d / "info.json").write_bytes(b""), BROKEN),
    "foreign JSON": (lambda d: (d / "info.json").write_text("[]"), BROKEN),
    "deep JSON": (lambda d: (d / "info.json").write_text("[" * 100_000), BROKEN),
    "no checksums": (lambda d: forge(d, files={}), "no checksum of the split 'train'"),
    "another path": (
        lambda d: forge(d, files={"train": {"sha256": "../../../"}}),
        "no checksum of the split 'train'",
    ),
    "a newer version": (
        lambda d: forge(d, version=9),
        "has version 9, this fedloom reads version 2; add the data set again",
    ),
    "an older version": (
        lambda d: (d / "info.json").write_text('{"version": 1, "name": "d"}'),
        "has version 1, this fedloom reads version 2; add the data set again",
    ),
    "no classes": (lambda d: forge(d, classes=None), "no valid entry 'classes'"),
    "text as mean": (lambda d: forge(d, mean=["0.5"]), "no valid entry 'mean'"),
    "an unknown kind": (lambda d: forge(d, kind="sound"), "no kind 'sound'"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_noticed(how, digits, tmp_path):
    act, says = DAMAGE[how]
    store.add("d", digits, root=tmp_path / "r")
    act(tmp_path / "r" / "d")
    with pytest.raises(UserError) as caught:
        store.load("d", tmp_path / "r")
    assert says in str(caught.value)
    (found,) = store.check("d", tmp_path / "r")
    assert found.startswith("problem: ")
    assert says in found


def test_every_changed_bit_of_info_json_is_noticed(digits, tmp_path):
    store.add("d", digits, root=tmp_path)
    file = tmp_path / "d" / "info.json"
    whole = file.read_bytes()
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << (position % 8)
        file.write_bytes(changed)
        for act in (store.load, listing.describe):
            with pytest.raises(UserError, match="add the data set again"):
                act("d", tmp_path)
    assert store.check("d", tmp_path)[0].startswith("problem: ")


def stored(tmp_path, dataset, **changes):
    store.save(replace(dataset, name="d", **changes), tmp_path)
    return store.check("d", tmp_path)


@pytest.fixture
def made():
    return from_torch(
        [(torch.arange(i, i + 4, dtype=torch.uint8).reshape(1, 2, 2), i % 3) for i in range(30)]
    )


def test_check_finds_what_would_stop_training(made, tmp_path):
    assert stored(tmp_path, made, classes=("0", "1")) == [
        "problem: train has labels 0 to 2 for 2 classes",
        "problem: test has labels 0 to 2 for 2 classes",
    ]


def test_check_finds_uneven_splits_and_nan(made, tmp_path):
    train = replace(made.train, x=made.train.x.float().index_fill(0, torch.tensor([0]), torch.nan))
    test = replace(made.test, x=made.test.x.float()[:-1, :, :1])
    assert stored(tmp_path, made, train=train, test=test) == [
        "problem: train holds NaN or infinity",
        f"problem: test has {len(made.test) - 1} samples and {len(made.test)} labels",
        "problem: test has samples of shape (1, 1, 2), the training split (1, 2, 2)",
    ]


def test_check_finds_empty_splits_and_characters_out_of_range(made, tmp_path):
    none = replace(made.test, x=made.test.x[:0], y=made.test.y[:0])
    assert stored(tmp_path / "a", made, test=none) == ["problem: test has no samples"]
    text = replace(made.train, x=torch.full((len(made.train), 3), 5))
    says = "has characters 5 to 5 for an alphabet of 3"
    assert stored(tmp_path / "b", made, kind="text", train=text, test=text) == [
        f"problem: train {says}",
        f"problem: test {says}",
    ]


def test_check_reports_test_samples_that_occur_in_training(made, tmp_path):
    leaking = replace(made.test, x=made.train.x[: len(made.test)])
    says = f"{len(made.test)} of {len(made.test)} test samples occur in the training split too"
    assert stored(tmp_path, made, test=leaking) == [f"problem: {says}"]


def test_check_notes_classes_constants_and_users(made, tmp_path):
    x = made.train.x.clone()
    x[0] = 77
    people = torch.ones(len(made.train), dtype=torch.int64)
    train = replace(made.train, x=x, y=made.train.y.clamp(max=1), users=people)
    test = replace(made.test, y=made.test.y.clamp(min=1))
    assert stored(
        tmp_path, made, train=train, test=test, classes=tuple("abcd"), users=("u", "v")
    ) == [
        "note: classes of the test split without a training sample: 'c'",
        "note: classes without a test sample: 'a'",
        "note: classes without any sample: 'd'",
        f"note: 1 of {len(x)} samples of train have a single value throughout",
        "note: 1 of 2 users have no training sample",
    ]


def test_check_notes_constant_columns(write, tmp_path):
    file = write.table(tmp_path / "t.csv", ["a", "b", "y"], [[i, 5, i % 2] for i in range(20)])
    store.add("t", file, root=tmp_path / "r")
    assert store.check("t", tmp_path / "r") == [
        "note: 1 of 2 columns have one value in all training rows"
    ]
