"""Each format, written by hand and read back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.data.sources import SOURCES, read
from fedloom.data.sources.constants import CONSTANTS


@pytest.mark.parametrize("packed", [True, False])
def test_idx(write, tmp_path, packed):
    x = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    dataset = read(write.idx(tmp_path / "digits", (x, [1, 0]), (x[:1], [2]), packed))
    assert (dataset.name, dataset.kind, dataset.classes) == ("digits", "image", ("0", "1", "2"))
    assert dataset.train.x.dtype == torch.uint8
    assert torch.equal(dataset.train.x, torch.arange(24, dtype=torch.uint8).reshape(2, 1, 3, 4))
    assert dataset.train.y.tolist() == [1, 0]
    assert dataset.test.y.tolist() == [2]
    assert dataset.mean == pytest.approx([np.mean(np.arange(24)) / 255])
    assert dataset.std == pytest.approx([np.std(np.arange(24)) / 255])


def test_idx_with_dots_in_its_names(write, tmp_path):
    folder = write.idx(
        tmp_path / "mnist", (np.zeros((2, 2, 2)), [1, 0]), (np.ones((1, 2, 2)), [1]), packed=False
    )
    for file in list(folder.iterdir()):
        file.rename(folder / file.name.replace("-idx", ".idx"))
    dataset = read(folder)
    assert len(dataset.train) == 2
    assert (dataset.mean, dataset.std) == ((0.1307,), (0.3081,)), (
        "a set called mnist gets MNIST's constants"
    )


@settings(deadline=None, max_examples=25)
@given(data=st.data(), count=st.integers(1, 5), height=st.integers(1, 6), width=st.integers(1, 6))
def test_idx_round_trip(write, tmp_path_factory, data, count, height, width):
    size = count * height * width
    x = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8).reshape(
        count, height, width
    )
    y = np.arange(count)
    dataset = read(write.idx(tmp_path_factory.mktemp("idx"), (x, y), (x[::-1], y[::-1])))
    assert np.array_equal(dataset.train.x[:, 0].numpy(), x)
    assert np.array_equal(dataset.test.x[:, 0].numpy(), x[::-1])
    assert dataset.test.y.tolist() == y[::-1].tolist()


def test_cifar10(write, tmp_path):
    folder = write.cifar10(
        tmp_path / "c", {"data_batch_2": [3], "data_batch_1": [1, 0], "test_batch": [9]}
    )
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    dataset = read(folder)
    assert dataset.name == "cifar10"
    assert dataset.classes == tuple("abcdefghij")
    assert dataset.train.y.tolist() == [1, 0, 3]
    assert dataset.shape == (3, 32, 32)
    assert [dataset.train.x[2, c].unique().tolist() for c in range(3)] == [[7], [3], [0]]
    assert (dataset.mean, dataset.std) == CONSTANTS["cifar10"]


def test_cifar100_takes_the_fine_label(write, tmp_path):
    dataset = read(write.cifar100(tmp_path / "c", train=[99, 0], test=[42]), name="mine")
    assert dataset.name == "mine"
    assert dataset.train.y.tolist() == [99, 0]
    assert len(dataset.classes) == 100
    assert dataset.test.x.unique().tolist() == [42]
    assert (dataset.mean, dataset.std) == CONSTANTS["cifar100"]


def test_tiny_imagenet_numbers_classes_as_wnids_txt_does(write, tmp_path):
    dataset = read(write.tiny(tmp_path / "t"))
    assert dataset.classes == ("word of n02", "word of n01")
    assert dataset.train.y.tolist() == [0, 0, 1, 1]
    assert dataset.train.x[:, :, 0, 0].tolist() == [[10] * 3, [10] * 3, [110] * 3, [110] * 3]
    assert dataset.test.x[:, :, 0, 0].tolist() == [[10] * 3, [110] * 3], "grey files become RGB"
    assert (dataset.mean, dataset.std) == CONSTANTS["tiny-imagenet"]


@pytest.mark.parametrize("test", ["test", "val"])
def test_image_folder(write, tmp_path, test):
    for split, classes in (("train", "cab"), (test, "ba")):
        for i, name in enumerate(classes):
            write.picture(tmp_path / "p" / split / name / "1.png", (i, 100, 200), size=(5, 3))
    dataset = read(tmp_path / "p")
    assert dataset.classes == ("a", "b", "c")
    assert dataset.shape == (3, 3, 5)
    assert dataset.train.x[:, 0, 0, 0].tolist() == [1, 2, 0]
    assert dataset.test.y.tolist() == [0, 1]
    assert dataset.about["test split"] == f"the folder {test}"
    assert dataset.std[1:] == (1.0, 1.0), "a channel of one value is not divided by zero"


def test_image_folder_without_a_test_split_grey_and_resized(write, tmp_path):
    for name in "ab":
        for i in range(5):
            write.picture(tmp_path / "p" / name / f"{i}.png", 10 * i, size=(4 + i, 6), mode="L")
    dataset = read(tmp_path / "p", size=2)
    assert dataset.shape == (1, 2, 2)
    assert (len(dataset.train), len(dataset.test)) == (8, 2)
    assert dataset.test.y.tolist() == [0, 1]
    assert "0.2" in dataset.about["test split"]
    assert "2 x 2" in dataset.about["images"]


def test_leaf_images(write, tmp_path):
    users = {
        "zoe": ([[0.0, 0.2, 0.4, 1.0]] * 5, [0, 1, 2, 0, 1]),
        "abe": ([[1.0, 0.0, 0.0, 0.0]] * 5, [2] * 5),
    }
    dataset = read(write.leaf(tmp_path / "f" / "all_data.json", users).parent)
    assert dataset.users == ("abe", "zoe")
    assert (len(dataset.train), len(dataset.test)) == (8, 2)
    is_zoe = dataset.train.users == dataset.users.index("zoe")
    assert dataset.train.x[is_zoe].unique(dim=0).tolist() == [[[[0, 51], [102, 255]]]]
    assert dataset.train.x[~is_zoe].unique(dim=0).tolist() == [[[[255, 0], [0, 0]]]]
    assert sorted(dataset.test.users.tolist()) == [0, 1], "each user is tested"


def test_leaf_train_and_test_folders_with_several_files(write, tmp_path):
    write.leaf(tmp_path / "train" / "a.json", {"u1": ([[0, 1, 2, 3]], [0])})
    write.leaf(tmp_path / "train" / "b.json", {"u0": ([[4, 5, 6, 255]], [1])})
    write.leaf(
        tmp_path / "test" / "a.json", {"u1": ([[9, 9, 9, 9]], [1]), "new": ([[9, 9, 9, 9]], [1])}
    )
    dataset = read(tmp_path)
    assert dataset.users == ("u0", "u1", "new"), "training users come first"
    assert dataset.train.users.tolist() == [1, 0]
    assert dataset.test.users.tolist() == [1, 2]
    assert dataset.train.x[1].flatten().tolist() == [4, 5, 6, 255]


def test_leaf_colour_images_as_nested_lists(write, tmp_path):
    picture = [[[10 * row + column, 100, 200] for column in range(5)] for row in range(6)]
    dataset = read(write.leaf(tmp_path / "c.json", {"u": ([picture] * 5, [0, 1, 0, 1, 0])}))
    assert dataset.shape == (3, 6, 5)
    assert dataset.train.x[0, :, 2, 3].tolist() == [23, 100, 200]


def test_leaf_text(write, tmp_path):
    dataset = read(
        write.leaf(
            tmp_path / "s.json",
            {"hamlet": (["to b", "o be", " be ", "be o", "e or"], list("e or "))},
        )
    )
    assert dataset.kind == "text"
    assert dataset.classes == (" ", "b", "e", "o", "r", "t")
    decoded = ["".join(dataset.classes[c] for c in row) for row in dataset.train.x.tolist()]
    assert decoded == ["to b", "o be", " be ", "be o"]
    assert [dataset.classes[c] for c in dataset.train.y.tolist()] == list("e or")
    assert dataset.test.x.dtype == torch.int64
    assert dataset.test.y.tolist() == [0], "the last of a user's windows are held out"


def test_npz_two_files_with_writers(write, tmp_path):
    x = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    write.npz(tmp_path / "train.npz", x=x, y=np.uint8([0, 1, 1]), writer=np.int16([10, 9, 10]))
    write.npz(tmp_path / "test.npz", x=x[:1], y=np.uint8([1]), writer=np.int16([2]))
    dataset = read(tmp_path)
    assert dataset.users == ("9", "10", "2"), "numbers in order, training users first"
    assert dataset.train.users.tolist() == [1, 0, 1]
    assert dataset.test.users.tolist() == [2]
    assert torch.equal(dataset.train.x[:, 0], torch.from_numpy(x))


def test_npz_in_the_form_of_keras_with_class_names(write, tmp_path):
    x = np.zeros((2, 4, 4, 3), np.uint8)
    x[..., 0] = 9
    arrays = {
        "x_train": x,
        "y_train": [[0], [2]],
        "x_test": x[:1],
        "y_test": [[1]],
        "classes": ["cat", "dog", "eel"],
    }
    dataset = read(write.npz(tmp_path / "k.npz", **arrays))
    assert dataset.classes == ("cat", "dog", "eel")
    assert dataset.train.y.tolist() == [0, 2]
    assert dataset.train.x[0, :, 0, 0].tolist() == [9, 0, 0]


def test_npz_features_are_standardised_by_the_training_rows(write, tmp_path):
    arrays = {
        "x_train": [[1.0, 5.0], [3.0, 5.0]],
        "y_train": [0, 1],
        "x_test": [[5.0, 6.0]],
        "y_test": [0],
    }
    dataset = read(write.npz(tmp_path / "t.npz", **arrays))
    assert dataset.kind == "table"
    assert dataset.train.x.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert dataset.test.x.tolist() == [[3.0, 1.0]]
    assert (dataset.mean, dataset.std) == ((), ())


@settings(deadline=None, max_examples=25)
@given(
    data=st.data(),
    count=st.integers(2, 6),
    side=st.integers(1, 5),
    last=st.booleans(),
    scaled=st.booleans(),
)
def test_npz_round_trip(write, tmp_path_factory, data, count, side, last, scaled):
    size = count * 3 * (side + 4) ** 2
    x = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8).reshape(
        count, 3, side + 4, side + 4
    )
    given_x = np.moveaxis(x, 1, 3) if last else x
    given_x = given_x / np.float32(255) if scaled else given_x
    folder = tmp_path_factory.mktemp("npz")
    for split in ("train", "test"):
        write.npz(
            folder / f"{split}.npz", x=given_x, y=np.arange(count), users=np.arange(count) // 2
        )
    dataset = read(folder)
    assert np.array_equal(dataset.train.x.numpy(), x)
    assert np.array_equal(dataset.test.x.numpy(), x)
    assert dataset.train.users.tolist() == (np.arange(count) // 2).tolist()


def test_every_format_says_what_it_looks_for_and_documents_its_options():
    from fedloom.core.spec import parameters

    for source in SOURCES.values():
        assert len(source.LOOKS_FOR) > 20
        assert all(p.about.meaning for p in parameters(source.read).values() if p.name != "path")
