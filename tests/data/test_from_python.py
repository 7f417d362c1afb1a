"""Data sets from arrays, torch Datasets and DataFrames."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.data.client import EvaluationBatches, federate, normaliser
from fedloom.data.dataset import Dataset
from fedloom.data.from_python import as_dataset, content_digest
from fedloom.data.partition import partition
from fedloom.data.sources.checks import problems_and_notes
from fedloom.data.subset import renormalised, subset

RNG = np.random.default_rng(0)
X = RNG.normal(3.0, 100.0, (20, 4)).astype(np.float32)
Y = np.arange(20) % 2
TEST = (X[:6] + 1, Y[:6])


def message(*args, **options):
    with pytest.raises(UserError) as caught:
        as_dataset(*args, **options)
    return str(caught.value)


# Features ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(20, 4), (20, 3, 5), (20, 1, 4, 4), (20, 4, 4, 3), (20, 2, 3, 2, 2)]
)
def test_the_model_sees_the_bits_that_were_passed(shape):
    x = RNG.normal(size=shape).astype(np.float32)
    x.flat[:4] = [-0.0, 1e-45, -3.4e38, 1e30]
    dataset = as_dataset((x, Y), test=(x[::-1], Y))
    assert dataset.shape == shape[1:]
    clients = federate(dataset, [np.arange(20)])
    seen, _ = clients[0].batch(torch.arange(20))
    assert seen.dtype == torch.float32
    assert seen.numpy().tobytes() == x.tobytes()
    tested = torch.cat(
        [x for x, _ in EvaluationBatches(dataset.test, normaliser(dataset), batch=7)]
    )
    assert tested.numpy().tobytes() == x[::-1].tobytes()


@pytest.mark.parametrize(
    "given",
    [
        X.tolist(),
        torch.from_numpy(X),
        torch.from_numpy(X).requires_grad_(),
        list(torch.from_numpy(X)),
        X.astype(np.float64),
        np.asfortranarray(X),
    ],
    ids=["lists", "tensor", "with gradient", "list of tensors", "float64", "Fortran order"],
)
def test_the_same_features_in_any_container_are_the_same_data(given):
    plain = as_dataset((X, Y))
    dataset = as_dataset((given, Y.tolist()))
    assert torch.equal(dataset.train.x, plain.train.x) and torch.equal(dataset.test.y, plain.test.y)
    assert dataset.name == plain.name


def test_types_that_numpy_lacks_and_whole_numbers_become_float32():
    x = torch.arange(40).view(20, 2)
    for given in (x.to(torch.bfloat16), x.to(torch.float16), x, x.to(torch.uint8), x.numpy() > 5):
        dataset = as_dataset((given, Y), test=(given, Y))
        assert dataset.kind == "table" and dataset.train.x.dtype == torch.float32
        assert torch.equal(dataset.train.x, torch.as_tensor(given).float())


@pytest.mark.parametrize("shape", [(20, 5, 6), (20, 5, 6, 3), (20, 3, 5, 6)])
def test_uint8_images_are_normalised_by_their_own_constants(shape):
    x = RNG.integers(0, 256, shape).astype(np.uint8)
    dataset = as_dataset((x, Y), test=(x, Y), name="cifar10")  # the name brings no constants along
    channels = 1 if len(shape) == 3 else 3
    assert dataset.kind == "image" and dataset.shape == (channels, 5, 6)
    assert dataset.train.x.dtype == torch.uint8
    seen = normaliser(dataset)(dataset.train.x)
    torch.testing.assert_close(seen.mean((0, 2, 3)), torch.zeros(channels), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        seen.std((0, 2, 3), unbiased=False), torch.ones(channels), atol=1e-5, rtol=0
    )


def test_float_images_can_be_made_smaller_but_not_normalised_again():
    x = RNG.random((20, 1, 4, 4)).astype(np.float32)
    dataset = as_dataset((x, Y), test=(x, Y))
    assert (dataset.kind, dataset.mean, dataset.std) == ("image", (), ())
    small = subset(dataset, pixels=2).train.x
    np.testing.assert_allclose(small.numpy(), x.reshape(20, 1, 2, 2, 2, 2).mean((3, 5)), rtol=1e-6)
    with pytest.raises(UserError, match="images of floats, which reach the model unchanged"):
        renormalised(dataset, (0.5,), (0.5,))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_changing_the_array_afterwards_does_not_change_the_data(dtype):
    x = np.ones((20, 1, 4, 4), dtype)
    x[::2] = 0
    dataset = as_dataset((x, Y), test=(x, Y))
    digest = content_digest(dataset)
    x[:] = 7
    assert content_digest(dataset) == digest


# Labels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([0, 1, 2, 1], ("0", "1", "2")),
        ([7, -3, 100, -3], ("-3", "7", "100")),
        (["dog", "cat", "eel", "cat"], ("cat", "dog", "eel")),
        ([2.0, 0.0, 1.0, 0.0], ("0", "1", "2")),
        ([True, False, True, False], ("False", "True")),
        (np.array(["b", "a", "b", "c"], dtype=object), ("a", "b", "c")),
        (torch.tensor([[3], [1], [3], [2]]), ("1", "2", "3")),
    ],
)
def test_labels_become_positions_in_the_sorted_classes(labels, classes):
    dataset = as_dataset((X[:4], labels), test=(X[:4], labels))
    assert dataset.classes == classes
    names = [classes[i] for i in dataset.train.y.tolist()]
    given = labels.flatten().tolist() if hasattr(labels, "flatten") else labels
    expected = [str(int(v)) if isinstance(v, float) else str(v) for v in given]
    assert names == expected and dataset.train.y.dtype == torch.int64


def test_classes_of_both_splits_count():
    dataset = as_dataset((X[:4], [5, 9, 5, 9]), test=(X[:2], [7, 9]))
    assert dataset.classes == ("5", "7", "9")
    assert dataset.test.y.tolist() == [1, 2]


def test_a_fraction_as_label_is_named():
    assert message((X, Y + 0.25)) == (
        "data: found label 0.25 at sample 0, expected a whole number or a string; "
        "this looks like a target for regression: set task=regression, or sort the values into "
        "classes first"
    )


# Test split --------------------------------------------------------------------------------------


def test_a_share_of_every_class_is_held_out_and_nothing_is_lost():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    x = np.arange(100.0)[:, None]
    dataset = as_dataset((x, labels), test_share=0.1)
    assert torch.bincount(dataset.test.y).tolist() == [5, 3, 2]
    both = torch.cat([dataset.train.x, dataset.test.x]).flatten()
    assert sorted(both.tolist()) == x.flatten().tolist()
    assert "a share of 0.1" in dataset.about["test split"]


def test_the_held_out_samples_depend_on_the_seed_alone():
    first, again, other = (as_dataset((X, Y), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.test.x, again.test.x) and first.name == again.name
    assert not torch.equal(first.test.x, other.test.x) and first.name != other.name
    assert torch.bincount(other.test.y).tolist() == [2, 2]


# Clients -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [[3, 1, 1, 3, 10] * 4, ["c", "a", "a", "c", "b"] * 4])
def test_client_ids_make_the_partition_user(ids):
    dataset = as_dataset((X, Y), test=TEST, client_ids=ids)
    assert dataset.users == (("1", "3", "10") if ids[0] == 3 else ("a", "b", "c"))
    users = dataset.train.users.numpy()
    parts = partition(Spec("user"), dataset.train.labels, 0, Key.root(0), users)
    names = np.array([str(i) for i in ids])
    for user, rows in zip(dataset.users, parts, strict=True):
        assert rows.tolist() == np.flatnonzero(names == user).tolist()


def test_held_out_samples_keep_their_client():
    ids = np.repeat(["a", "b"], 10)
    dataset = as_dataset((X, Y), client_ids=ids, test_share=0.2)
    assert torch.bincount(dataset.test.users).tolist() == [2, 2]
    for split in (dataset.train, dataset.test):
        for x, user in zip(split.x, split.users, strict=True):
            row = int(np.flatnonzero((x.numpy() == X).all(1))[0])
            assert dataset.users[user] == ids[row]


# Names -------------------------------------------------------------------------------------------


def test_the_name_is_the_digest_of_the_content():
    dataset = as_dataset((X, Y), test=TEST)
    assert dataset.name == f"python:arrays-{content_digest(dataset)[:12]}"
    assert len(content_digest(dataset)) == 64
    assert as_dataset((X.copy(), Y.tolist()), test=TEST).name == dataset.name
    assert as_dataset((X, Y), test=TEST, name="mine").name == "mine"
    assert content_digest(as_dataset((X, Y), test=TEST, name="mine")) == content_digest(dataset)


def test_whatever_differs_gives_another_name():
    changed = X.copy()
    changed[3, 2] = np.nextafter(changed[3, 2], np.float32(1e9))
    ids = [0, 1] * 10
    images = np.zeros((20, 4, 1), np.uint8)
    images[::2] = 1
    names = [
        as_dataset((X, Y), test=TEST).name,
        as_dataset((changed, Y), test=TEST).name,
        as_dataset((X, 1 - Y), test=TEST).name,
        as_dataset((X, Y), test=(TEST[0] + 1, TEST[1])).name,
        as_dataset((X, Y), test=(TEST[0], 1 - TEST[1])).name,
        as_dataset((X, Y + 1), test=(TEST[0], TEST[1] + 1)).name,
        as_dataset((X, Y), test=TEST, client_ids=ids).name,
        as_dataset((X, Y), test=TEST, client_ids=[str(i) + "x" for i in ids]).name,
        as_dataset((X.reshape(20, 2, 2), Y), test=(TEST[0].reshape(6, 2, 2), TEST[1])).name,
        as_dataset((images, Y), test=(images, Y)).name,
        as_dataset((images.astype(float), Y), test=(images.astype(float), Y)).name,
        as_dataset((X, Y)).name,
        as_dataset((X, Y), test_share=0.3).name,
    ]
    assert len(set(names)) == len(names)


# Torch Datasets ----------------------------------------------------------------------------------


def test_torch_datasets():
    pairs = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    assert as_dataset(pairs).name == as_dataset((X, Y)).name
    tested = as_dataset(pairs, test=TensorDataset(*map(torch.from_numpy, TEST)))
    assert tested.name == as_dataset((X, Y), test=TEST).name
    assert as_dataset(pairs).about["source"] == "TensorDataset"


class Letters:
    """Indexable, with a length, names as labels, and uint8 images; not a subclass of torch's."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return np.full((4, 4), index, np.uint8), "ab"[index % 2]


def test_a_torch_dataset_may_name_its_classes():
    dataset = as_dataset(Letters())
    assert (dataset.kind, dataset.shape, dataset.classes) == ("image", (1, 4, 4), ("a", "b"))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())

    def __len__(self):
        return 3


# The project's own Dataset -----------------------------------------------------------------------


def test_a_dataset_is_returned_as_it_is():
    dataset = as_dataset((X, Y))
    assert as_dataset(dataset) is dataset
    assert isinstance(dataset, Dataset) and problems_and_notes(dataset) == []


@pytest.mark.parametrize(
    "option",
    [
        {"test": TEST},
        {"client_ids": [1]},
        {"target": "y"},
        {"client": "c"},
        {"name": "a"},
        {"test_share": 0.5},
        {"seed": 1},
    ],
    ids=lambda option: next(iter(option)),
)
def test_a_dataset_takes_no_other_option(option):
    said = message(as_dataset((X, Y)), **option)
    assert said.startswith(f"data: {next(iter(option))}= cannot be used here")


# Errors ------------------------------------------------------------------------------------------

HOLE = X.copy()
HOLE[7, 1] = np.nan


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        ((X, Y[:9]), {}, "data: found 20 samples and 9 labels, expected one label per sample"),
        ((HOLE, Y), {}, "data: found NaN or infinity in sample 7"),
        ((X.astype(np.float64) * 1e300, Y), {}, "NaN or infinity in sample 0"),
        ((X, np.where(Y > 0, np.nan, 0)), {}, "found label nan at sample 1"),
        ((X, [None, *Y[1:]]), {}, "1 samples without a label (the first is sample 0)"),
        (
            (X, [float("nan"), *"ab" * 9, "a"]),
            {},
            "1 samples without a label (the first is sample 0)",
        ),
        ((X, ["a", 1] * 10), {}, "labels of numbers and text mixed"),
        ((X, np.ma.masked_equal(Y, 1)), {}, "masked values (the first is in sample 1)"),
        ((np.ma.masked_less(X, X.max()), Y), {}, "data, X: found 79 masked values"),
        ((X.astype(object), Y), {}, "if all are numbers already, pass X.astype('float32')"),
        ((X, Y), {"client_ids": [float("nan"), *"ab" * 9, "a"]}, "client_ids: found the id nan"),
        ((X, ["a", 1] * 10), {"test": (X, np.array(["a", 1] * 10, object))}, "text mixed"),
        ((X[:0], Y[:0]), {}, "X of shape (0, 4), expected at least one sample"),
        ((X[:, :0], Y), {}, "X of shape (20, 0)"),
        ((X[:, 0], Y), {}, "use X.reshape(-1, 1)"),
        ((X, np.eye(20)), {}, "labels of shape (20, 20)"),
        ((X, Y * 0), {}, "the one class '0', expected at least two"),
        ((X.astype(str), Y), {}, "features of type <U"),
        (([[1, 2], [3]], [0, 1]), {}, "data, X: found entries of several shapes or types"),
        ((X, Y * 1j), {}, "labels of type complex128"),
        ((torch.eye(20).to_sparse(), Y), {}, "call to_dense()"),
        ((X, Y), {"test": (X[:, :2], Y)}, "test: found samples of shape (2,), expected (4,)"),
        ((X, Y), {"test": TensorDataset(torch.zeros(2))}, "expected a pair (X, y) as in data"),
        ((X, Y), {"test": (X, Y.astype(str))}, "text in one split and numbers in the other"),
        ((X, Y), {"client_ids": [1, 2]}, "client_ids: found ids of shape (2,) for 20 samples"),
        ((X, Y), {"client_ids": Y + 0.5}, "client_ids: found the id 0.5"),
        ((X, Y), {"target": "label"}, "target= cannot be used here, because only a DataFrame"),
        ((X, Y), {"test_share": 1.0}, "test_share=1.0 must lie between 0 and 1"),
        ((X, Y), {"test_share": "half"}, "test_share='half' must lie between 0 and 1"),
        ((X, Y), {"test_share": 0.001}, "leaves no test sample"),
        ((X, Y), {"seed": "a"}, "seed='a' must be a whole number"),
        ((X, Y, X, Y), {}, "a tuple of 4, expected a pair (X, y); pass data=(X, y) and the test"),
        (X, {}, "a ndarray without labels"),
        ("cifar10", {}, "data: found 'cifar10', expected (X, y), a torch Dataset"),
        ({"x": X}, {}, "expected (X, y), a torch Dataset"),
        (3, {}, "data: found 3, expected"),
        (Stream(), {}, "expected a map-style torch Dataset"),
        (TensorDataset(torch.zeros(3)), {}, "a tuple as sample 0, expected a pair (x, label)"),
    ],
)
def test_what_cannot_be_used_is_explained(data, options, says):
    assert says in message(data, **options)


def test_images_of_two_types_do_not_go_together():
    x = np.zeros((20, 4, 4), np.uint8)
    said = message((x, Y), test=(x / 255, Y))
    assert said.startswith("test: found float32 samples, expected uint8 as in data")


# DataFrames --------------------------------------------------------------------------------------


@pytest.fixture
def frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(
        {
            "age": [30, 41, 52, 63] * 5,
            "height": np.float32([1.5, 1.75, 1.8, 2.0] * 5),
            "smoker": [True, False] * 10,
            "city": ["Oslo", "Rome", "Bonn", "Rome"] * 5,
            "grade": pandas.Categorical([1, 2, 3, 1] * 5),
            "hospital": ["north", "south"] * 10,
            "label": ["ill", "well", "well", "ill"] * 5,
        }
    )


def test_numbers_of_a_dataframe_stay_and_text_is_one_hot(frame):
    dataset = as_dataset(frame, test=frame, target="label", client="hospital")
    assert (dataset.kind, dataset.classes, dataset.users) == (
        "table",
        ("ill", "well"),
        ("north", "south"),
    )
    assert dataset.train.x[:2].tolist() == [
        [30, 1.5, 1, 0, 1, 0, 1, 0, 0],  # age, height, smoker, Bonn, Oslo, Rome, grades 1, 2, 3
        [41, 1.75, 0, 0, 0, 1, 0, 1, 0],
    ]
    assert dataset.train.users.tolist() == [0, 1] * 10 == dataset.test.users.tolist()
    assert dataset.train.y.tolist() == [0, 1, 1, 0] * 5


def test_a_dataframe_without_a_test_split(frame):
    dataset = as_dataset(frame, target="label", client="hospital", test_share=0.2)
    assert (len(dataset.train), len(dataset.test)) == (16, 4)
    assert as_dataset(frame, target="label").users == ()
    same = as_dataset(
        frame.drop(columns="hospital"),
        target="label",
        client_ids=frame["hospital"],
        test_share=0.2,
    )
    assert same.name == dataset.name


def test_the_test_frame_may_lack_clients_and_order_its_columns_differently(frame):
    test = frame.drop(columns="hospital")[::-1]
    test = test[sorted(test.columns)]
    dataset = as_dataset(frame, test=test, target="label", client="hospital")
    assert dataset.test.users is None
    assert torch.equal(dataset.test.x.flip(0), dataset.train.x)


def test_missing_categories_and_many_categories(frame):
    frame.loc[0, "city"] = None
    dataset = as_dataset(frame[["city", "label"]], test=frame[["city", "label"]], target="label")
    assert dataset.train.x[:2].tolist() == [[0, 0, 0, 1], [0, 0, 1, 0]]  # Bonn, Oslo, Rome, missing
    long = type(frame)({"name": [f"n{i // 4}" for i in range(100)], "label": [0, 1] * 50})
    assert as_dataset(long, target="label").shape == (1,), "25 categories are one column of numbers"


def test_nullable_numbers_and_arrays_made_of_frames(frame):
    pandas = pytest.importorskip("pandas")
    frame["age"] = frame["age"].astype("Int64")
    numbers = frame[["age", "height"]]
    plain = as_dataset((np.asarray(numbers, dtype=float), frame["label"]))
    assert as_dataset(frame[["age", "height", "label"]], target="label").name == plain.name
    frame.loc[3, "age"] = pandas.NA
    part = frame[["age", "height", "label"]]
    filled = as_dataset(part, test=part, target="label")
    median = float(frame["age"].median())
    assert filled.train.x[3].tolist() == [median, 1.0, pytest.approx(frame.loc[3, "height"])]
    assert filled.train.x[:3, 1].tolist() == [0, 0, 0]
    frame.loc[5, "height"] = np.inf
    assert "column 'height': found infinity, expected finite" in message(frame, target="label")
    frame["height"] = np.nan
    assert "column 'height': found no value in the training rows" in message(frame, target="label")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "the name of the label column; set target=COLUMN"),
        ({"target": "lable"}, "no column 'lable' in the DataFrame data; did you mean 'label'?"),
        ({"target": "label", "client": "hospitl"}, "did you mean 'hospital'?"),
        ({"target": 4}, "no column '4' in the DataFrame data"),
        ({"target": []}, "target=[] names no column; name the column to predict"),
        ({"target": ["label", "label"]}, "target= names the column 'label' twice; name it once"),
        ({"target": "height"}, "column 'height': found label 1.5 at sample 0"),
        ({"target": "label", "client": "height"}, "column 'height': found the id 1.5"),
        ({"target": "label", "client": "hospital", "client_ids": [0] * 20}, "client_ids= cannot"),
        ({"target": "label", "test": (X, Y)}, "test: found a tuple, expected a DataFrame as in"),
    ],
)
def test_dataframe_options_that_do_not_fit(frame, options, says):
    assert says in message(frame, **options)


def test_a_column_may_be_named_by_a_number():
    """pandas numbers the columns of what has no header."""
    pandas = pytest.importorskip("pandas")
    numbers = pandas.DataFrame(np.random.default_rng(0).normal(size=(20, 4)))
    dataset = as_dataset(numbers, target=3, task="regression")
    assert dataset.shape == (3,) and dataset.classes == ("3",)
    assert dataset.name == as_dataset(numbers, target=[3], task="regression").name


def test_columns_that_cannot_be_used(frame):
    pandas = pytest.importorskip("pandas")
    frame["day"] = pandas.to_datetime(["2020-01-01"] * 20)
    assert "column 'day': found values of type datetime64" in message(frame, target="label")
    frame["day"] = [[1]] * 20
    assert "column 'day': found a value of type list" in message(frame, target="label")
    frame["day"] = [f"day {i}" for i in range(20)]
    short = frame.drop(columns="day")
    assert "add or remove: day" in message(frame, test=short, target="label")
    frame["day"] = 1.0
    short["day"] = "one"
    assert "column 'day' with numbers in one split" in message(frame, test=short, target="label")
    names = type(frame)({"name": [f"n{i}" for i in range(100)], "label": [0, 1] * 50})
    assert "data.drop(columns='name')" in message(names, target="label")
    assert "no rows" in message(frame[:0], target="label")
    frame.loc[5, "label"] = None
    assert "1 samples without a label (the first is sample 5)" in message(frame, target="label")
    frame.columns = [*frame.columns[:-1], "age"]
    assert "column 'age' twice" in message(frame, target="label")
    assert "no column apart from the target" in message(frame[["label"]][6:], target="label")
