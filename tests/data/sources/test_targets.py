"""Targets of other tasks than classification, through every way in."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from fedloom.core.errors import UserError
from fedloom.data import listing, store
from fedloom.data.dataset_summary import summary, summary_lines
from fedloom.data.from_python import as_dataset
from fedloom.data.sources import from_torch, read
from fedloom.data.sources.checks import problems_and_notes
from fedloom.data.tasks import with_task

X = np.arange(60, dtype=np.float32).reshape(30, 2)
NUMBERS = np.linspace(0.5, 1.2, 30)
LABELS = np.stack([np.arange(30) % 2, np.arange(30) % 3 == 0], axis=1)


def ways(write, tmp_path, y, task):
    """The same targets through every way in."""
    pandas = pytest.importorskip("pandas")
    columns = {f"y{n}": c for n, c in enumerate(np.reshape(y, (len(y), -1)).T)}
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], **columns})
    rows = [[*x, *c] for x, c in zip(X.tolist(), zip(*columns.values(), strict=True), strict=True)]
    pairs = TensorDataset(torch.from_numpy(X), torch.as_tensor(y))
    names = ["a", "b", *columns]
    return {
        "arrays": lambda: as_dataset((X, y), task=task),
        "tensors": lambda: as_dataset((torch.from_numpy(X), torch.as_tensor(y)), task=task),
        "torch Dataset": lambda: as_dataset(pairs, task=task),
        "from_torch": lambda: from_torch(pairs, task=task),
        "DataFrame": lambda: as_dataset(frame, target=list(columns), task=task),
        "npz": lambda: read(write.npz(tmp_path / "a.npz", x=X, y=y), task=task),
        "csv": lambda: read(
            write.table(tmp_path / "t.csv", names, rows), target=",".join(columns), task=task
        ),
    }


WAYS = ("arrays", "tensors", "torch Dataset", "from_torch", "DataFrame", "npz", "csv")
every_way = pytest.mark.parametrize("way", WAYS)


def targets(dataset):
    """All targets, in their order of value."""
    return np.sort(np.concatenate([dataset.train.labels, dataset.test.labels]), axis=0)


@pytest.mark.parametrize("way", ("arrays", "DataFrame", "npz", "csv"))
def test_numbers_that_float32_would_merge_are_refused(way, write, tmp_path):
    """A deviation of about 30 on 1.7e9, where the numbers of float32 are 128 apart."""
    y = 1.7e9 + 10.0 * (np.arange(30) % 11)
    with pytest.raises(UserError, match=r"rounding to float32 changes .* subtract a constant"):
        ways(write, tmp_path, y, "regression")[way]()
    assert ways(write, tmp_path, y - 1.7e9, "regression")[way]().train.y.std() > 1


@pytest.mark.parametrize("kind", ("int", "float"))
def test_whole_numbers_that_nearly_all_differ_are_no_classes(kind):
    x, y = np.zeros((200, 2)), (np.arange(200) * 2 % 161 + 60).astype(kind)
    with pytest.raises(UserError, match=r"set task=regression.*y\.astype\(str\)"):
        as_dataset((x, y))
    assert len(as_dataset((x, y.astype(str)), test=(x, y.astype(str))).classes) == 161


def test_many_classes_that_are_numbered_without_a_gap_are_classes():
    assert len(as_dataset((np.zeros((1000, 2)), np.arange(1000) % 200)).classes) == 200


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (np.full((30, 3), -100), "found only the target -100, expected tokens to predict"),
        (np.ones((30, 2), int), r"samples of shape \(3,\) and targets of shape \(2,\)"),
    ],
)
def test_tokens_that_nothing_can_be_learned_from(y, sentence):
    with pytest.raises(UserError, match=sentence):
        as_dataset((np.ones((30, 3), int), y), task="next-token")


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ("inf", "column 'y': found the target inf in b.csv row 3, expected a finite number"),
        ("1e200", r"1e\+200 in b.csv row 3, expected a number that fits into float32"),
    ],
)
def test_a_bad_number_in_a_file_is_named(bad, sentence, write, tmp_path):
    write.table(tmp_path / "a.csv", ["x", "y"], [[i, i / 2] for i in range(20)])
    rows = [[1, 0.5], [2, bad], *([i, i / 3] for i in range(18))]
    write.table(tmp_path / "b.csv", ["x", "y"], rows)
    with pytest.raises(UserError, match=sentence):
        read(tmp_path, target="y", task="regression")


def test_a_target_named_twice(write, tmp_path):
    file = write.table(tmp_path / "t.csv", ["x", "y"], [[i, i / 2] for i in range(20)])
    with pytest.raises(UserError, match="names the column 'y' twice"):
        read(file, target="y,y", task="regression")


def test_a_constant_target_is_worth_a_warning(write, tmp_path):
    file = write.table(tmp_path / "t.csv", ["x", "y"], [[i, 2.5] for i in range(20)])
    lines = problems_and_notes(read(file, target="y", task="regression"))
    assert "warning: the target 'y' is 2.5 in all training rows: nothing can be learned" in lines


def test_a_constant_target_from_python_is_worth_a_warning():
    with pytest.warns(UserWarning, match="'target' is 2.5 in all training rows: nothing can be"):
        as_dataset((X, np.full(30, 2.5)), task="regression")


def test_a_constant_that_float32_rounds_is_no_target_that_differs_by_little(write, tmp_path):
    """The mean of many 3.3 in float64 is not quite 3.3, so their deviation comes out above 0."""
    with pytest.warns(UserWarning, match=r"'target' is 3.3 in all training rows: nothing can be"):
        assert as_dataset((X, np.full(30, 3.3)), task="regression").train.y.unique().numel() == 1
    both = np.stack([NUMBERS, np.full(30, 0.1)], axis=1)
    with pytest.warns(UserWarning, match=r"'target 2' is 0.1 in all training rows"):
        as_dataset((X, both), task="regression")
    file = write.table(tmp_path / "t.csv", ["x", "y"], [[i, 3.3] for i in range(30)])
    assert len(read(file, target="y", task="regression").train) == 24


def test_the_sample_of_a_wrong_target_is_named():
    both = np.stack([NUMBERS, NUMBERS], axis=1).astype(object)
    both[3, 1] = None
    with pytest.raises(UserError, match=r"1 missing values .the first is in sample 3"):
        as_dataset((X, both), task="regression")
    both[3, 1] = "high"
    with pytest.raises(UserError, match="the target 'high' of sample 3, expected a number"):
        as_dataset((X, both), task="regression")


@pytest.mark.parametrize("missing", [None, float("nan"), pytest.param("NA", id="pandas.NA")])
def test_a_missing_target_is_named_as_such(missing):
    both = np.ones((30, 2), dtype=object)
    both[4, 1] = pytest.importorskip("pandas").NA if missing == "NA" else missing
    for task in ("regression", "multilabel"):
        with pytest.raises(UserError, match=r"1 missing values .the first is in sample 4"):
            as_dataset((X, both), task=task)


@pytest.mark.parametrize("missing", [None, float("nan"), pytest.param("NA", id="pandas.NA")])
def test_a_missing_name_of_a_class_is_no_class(missing):
    """pandas has NaN for a missing text; as a string it would be a class of its own."""
    names = np.array(["ill", "well"] * 15, dtype=object)
    names[4] = pytest.importorskip("pandas").NA if missing == "NA" else missing
    with pytest.raises(UserError, match=r"1 samples without a label .the first is sample 4"):
        as_dataset((X, names))


@every_way
def test_numbers_keep_their_value(way, write, tmp_path):
    dataset = ways(write, tmp_path, NUMBERS, "regression")[way]()
    assert dataset.task == "regression" and dataset.train.y.dtype == torch.float32
    assert len(dataset.classes) == 1
    assert np.array_equal(targets(dataset), NUMBERS.astype(np.float32))
    assert len(dataset.test) == 6  # a fifth, spread over the values
    assert dataset.test.y.max() > 1.0 and dataset.test.y.min() < 0.7
    assert problems_and_notes(dataset) == []


@every_way
def test_several_numbers_per_sample(way, write, tmp_path):
    both = np.stack([NUMBERS, NUMBERS**2], axis=1)
    dataset = ways(write, tmp_path, both, "regression")[way]()
    assert dataset.train.y.shape == (24, 2) and len(dataset.classes) == 2
    assert np.array_equal(targets(dataset), both.astype(np.float32))


@every_way
def test_labels_of_0_and_1(way, write, tmp_path):
    dataset = ways(write, tmp_path, LABELS.astype(float), "multilabel")[way]()
    assert dataset.task == "multilabel" and len(dataset.classes) == 2
    assert np.array_equal(targets(dataset).sum(0), LABELS.sum(0))
    assert all(int(column.sum()) > 0 for column in dataset.test.y.T)


@every_way
def test_what_is_neither_0_nor_1_is_no_label(way, write, tmp_path):
    with pytest.raises(UserError, match=r"expected 0 or 1; .* numbers need task=regression"):
        ways(write, tmp_path, LABELS * 2.0, "multilabel")[way]()


@pytest.mark.parametrize("way", [w for w in WAYS if w not in ("csv", "DataFrame")])
def test_one_column_is_not_multilabel(way, write, tmp_path):
    with pytest.raises(UserError, match="task=classification for one class per sample"):
        ways(write, tmp_path, LABELS[:, 0], "multilabel")[way]()


@every_way
def test_a_number_that_is_missing_is_refused(way, write, tmp_path):
    y = np.where(np.arange(30) == 4, np.nan, NUMBERS)
    with pytest.raises(UserError, match=r"finite number|without a label|missing values"):
        ways(write, tmp_path, y, "regression")[way]()


@every_way
def test_columns_of_labels_suggest_their_task(way, write, tmp_path):
    with pytest.raises(UserError, match="set task=multilabel if they are labels of 0 and 1"):
        ways(write, tmp_path, LABELS.astype(float), "classification")[way]()


def test_whole_floats_that_hardly_repeat_suggest_regression():
    """A heart rate is a whole number and still no class."""
    with pytest.raises(UserError, match=r"30 different numbers in 30 samples.*task=regression"):
        as_dataset((X, np.arange(60.0, 90.0)))
    assert len(as_dataset((X, np.arange(60, 90) % 5)).classes) == 5
    assert len(as_dataset((X, np.arange(60.0, 90.0) % 5)).classes) == 5


def test_rows_without_a_number_can_be_left_out(write, tmp_path):
    rows = [[n, "" if n % 10 == 3 else n / 2] for n in range(30)]
    file = write.table(tmp_path / "t.csv", ["a", "rate"], rows)
    with pytest.raises(UserError, match="leave them out with unlabelled=drop"):
        read(file, target="rate", task="regression")
    dataset = read(file, target="rate", task="regression", unlabelled="drop")
    assert len(targets(dataset)) == 27
    assert "note: 3 rows without a value to predict were left out" in problems_and_notes(dataset)


def test_text_is_no_number(write, tmp_path):
    rows = [[n, "yes" if n % 2 else "no"] for n in range(30)]
    file = write.table(tmp_path / "t.csv", ["a", "ill"], rows)
    with pytest.raises(UserError, match=r"found text \('no', 'yes'\), expected numbers"):
        read(file, target="ill", task="regression")
    with pytest.raises(UserError, match="write labels as 0 and 1"):
        read(file, target="ill", task="multilabel")


def test_a_stored_data_set_keeps_its_task(tmp_path):
    dataset = as_dataset((X, LABELS), task="multilabel", name="lab")
    store.save(dataset, tmp_path)
    loaded = store.load("lab", tmp_path)
    assert loaded.task == "multilabel" and loaded.classes == ("label 1", "label 2")
    assert torch.equal(loaded.train.y, dataset.train.y)
    assert listing.describe("lab", tmp_path)["task"] == "multilabel"
    assert store.check("lab", tmp_path) == []


def test_the_summary_says_what_is_predicted():
    rates = as_dataset((X, NUMBERS), task="regression")
    assert summary_lines(summary(rates))["numbers"] == "target, 0.5 to 1.2, mean 0.85"
    labels = as_dataset((X, LABELS), task="multilabel")
    assert summary_lines(summary(labels))["labels"] == "2: label 1 (15), label 2 (10)"


def test_each_client_has_test_samples():
    users = np.repeat(["a", "b"], 15)
    dataset = as_dataset((X, NUMBERS), task="regression", client_ids=users)
    assert dataset.test.users is not None
    assert torch.bincount(dataset.test.users).tolist() == [3, 3]


def test_tokens():
    tokens = np.arange(60).reshape(12, 5) % 6
    dataset = as_dataset((tokens[:, :-1], tokens[:, 1:]), task="next-token")
    assert dataset.kind == "text" and dataset.train.x.dtype == dataset.train.y.dtype == torch.int64
    assert dataset.train.y.shape[1:] == (4,) and len(dataset.classes) == 6
    with pytest.raises(UserError, match="token numbers from 0"):
        as_dataset((tokens[:, :-1] - 1, tokens[:, 1:]), task="next-token")
    with pytest.raises(UserError, match=r"tokens\[:, 1:\]"):
        as_dataset((tokens, tokens[:, 0]), task="next-token")


def test_tokens_too_large_for_a_vocabulary(write, tmp_path):
    """A model has an output for each number up to the largest: they took all memory."""
    tokens = np.arange(60).reshape(12, 5) % 6
    large = np.where(tokens == 5, 10**7, tokens)
    said = "found the token 10000000, expected token numbers up to 4194303; number the tokens"
    with pytest.raises(UserError, match=said):
        as_dataset((large[:, :-1], tokens[:, 1:]), task="next-token")
    with pytest.raises(UserError, match=said):
        as_dataset((tokens[:, :-1], large[:, 1:]), task="next-token")
    with pytest.raises(UserError, match=said):
        file = write.npz(tmp_path / "a.npz", x=large[:, :-1], y=tokens[:, 1:])
        read(file, task="next-token")
    beyond = np.where(tokens == 5, 2**63 + 1, tokens).astype(np.uint64)
    with pytest.raises(UserError, match="token numbers from 0"):
        as_dataset((beyond[:, :-1], tokens[:, 1:]), task="next-token")


def test_a_text_has_a_next_token_at_every_position():
    tokens = np.arange(60).reshape(12, 5) % 6
    text = as_dataset((tokens, tokens), task="next-token")
    classes = with_classes(text)
    made = with_task(classes, "next-token")
    assert torch.equal(made.train.y[:, :-1], text.train.x[:, 1:])
    assert torch.equal(made.train.y[:, -1], classes.train.y)
    assert with_task(made, "next-token") is made


def with_classes(text):
    """The data set with the next token only as the class, as readers of text make it."""
    from dataclasses import replace

    train, test = (replace(s, y=s.x[:, 0]) for s in (text.train, text.test))
    return replace(text, train=train, test=test, task="classification")


def test_other_targets_than_those_of_the_task_are_refused():
    dataset = as_dataset((X, NUMBERS), task="regression", name="rates")
    with pytest.raises(UserError, match=r"targets of 'rates' are numbers, .* set task=regression"):
        with_task(dataset, "classification")
