"""Signals and volumes from archives, arrays and torch Datasets: shapes, constants, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import fedloom as fl
from fedloom.core.errors import UserError
from fedloom.data import store
from fedloom.data.client import federate
from fedloom.data.from_python import as_dataset
from fedloom.data.sources import read
from fedloom.data.sources.checks import problems_and_notes
from fedloom.data.sources.torch_dataset import from_torch
from fedloom.data.subset import renormalised
from support.signals import signals, volumes

X, Y = signals(channels=3, length=20)
SCANS, SCAN_Y = volumes(channels=2)
BYTES = np.random.default_rng(0).integers(0, 256, (30, 7, 8, 9), dtype=np.uint8)


def archive(tmp_path, x, y=None, **arrays):
    y = np.arange(len(x)) % 3 if y is None else y
    np.savez(tmp_path / "data.npz", x=x, y=y, **arrays)
    return tmp_path / "data.npz"


def batch(dataset):
    """All training samples as the model sees them."""
    clients = federate(dataset, [np.arange(len(dataset.train))])
    return clients[0].batch(torch.arange(len(dataset.train)))[0]


@pytest.mark.parametrize(("x", "kind"), [(X, "signal"), (SCANS, "volume"), (BYTES, "volume")])
def test_samples_are_normalised_per_channel_and_stored_as_they_are(x, kind, tmp_path):
    dataset = read(archive(tmp_path, x), kind=kind)
    shape = x.shape[1:] if x.dtype != np.uint8 else (1, 7, 8, 9)
    assert (dataset.kind, dataset.shape) == (kind, shape)
    assert dataset.train.x.dtype == (torch.uint8 if x.dtype == np.uint8 else torch.float32)
    seen = batch(dataset).double().transpose(0, 1).flatten(1)
    assert seen.mean(1).abs().max() < 1e-6
    assert (seen.std(1, unbiased=False) - 1).abs().max() < 1e-6
    store.save(dataset, tmp_path / "home")
    again = store.load(dataset.name, tmp_path / "home")
    assert torch.equal(batch(again), batch(dataset)) and again.kind == kind
    assert problems_and_notes(again) == []


def test_constants_by_hand():
    x = np.array([[[1.0, 3.0], [5.0, 5.0]], [[1.0, 3.0], [5.0, 5.0]]])  # 2 signals, 2 channels
    dataset = as_dataset((x, [0, 1]), test=(x, [0, 1]), kind="signal")
    assert (dataset.mean, dataset.std) == ((2.0, 5.0), (1.0, 1.0))
    assert batch(dataset)[0].tolist() == [[-1.0, 1.0], [0.0, 0.0]]
    other = renormalised(dataset, (0.0, 1.0), (1.0, 2.0))
    assert batch(other)[0].tolist() == [[1.0, 3.0], [2.0, 2.0]]


@pytest.mark.parametrize(
    ("x", "options", "kind", "shape"),
    [
        (X[:, 0], {}, "table", (20,)),
        (X[:, 0], {"kind": "signal"}, "signal", (1, 20)),
        (X.transpose(0, 2, 1), {"kind": "signal", "channels": "last"}, "signal", (3, 20)),
        (X.transpose(0, 2, 1), {"kind": "signal", "channels": "first"}, "signal", (20, 3)),
        (SCANS, {}, "volume", (2, 8, 9, 8)),
        (SCANS[:, 0], {"kind": "volume"}, "volume", (1, 8, 9, 8)),
        (np.moveaxis(SCANS, 1, 4), {"channels": "last"}, "volume", (2, 8, 9, 8)),
        (BYTES[:, :, :, 0], {}, "image", (1, 7, 8)),
        (np.abs(X).round(), {"kind": "image"}, "image", (1, 3, 20)),
        (np.ones((30, 6, 6)), {}, "image", (1, 6, 6)),
    ],
)
def test_the_shape_or_the_option_decides(x, options, kind, shape, tmp_path):
    dataset = read(archive(tmp_path, x), **options)
    assert (dataset.kind, dataset.shape) == (kind, shape)
    labels = torch.arange(len(x)) % 3
    from_pairs = from_torch(TensorDataset(torch.as_tensor(x.copy()), labels), **options)
    assert torch.equal(from_pairs.train.x, dataset.train.x)


@pytest.mark.parametrize(
    ("x", "options", "says"),
    [
        (X, {}, "images (N,H,W) or signals (N,C,L): the shape does not tell which; set kind=sig"),
        (BYTES, {}, "volumes (N,D,H,W); set kind=volume if they are volumes"),
        (X.transpose(0, 2, 1), {"kind": "signal"}, "20 channels of (3,), expected fewer"),
        (np.moveaxis(SCANS, 1, 4), {}, "set channels=last if the last axis has the channels"),
        (SCANS, {"kind": "signal"}, "expected signals (N,L) or (N,C,L); reshape it"),
        (X, {"kind": "volume"}, "expected volumes (N,D,H,W) or (N,C,D,H,W)"),
        (X, {"kind": "table"}, "expected a table (N,F)"),
        (X[:, 0], {"channels": "last"}, "table data, expected signals or volumes for channels="),
        (X, {"kind": "sound"}, "kind='sound' must be"),
        (np.where(X > 1, np.nan, X), {"kind": "signal"}, "NaN or infinity in sample"),
        (X.astype(str), {"kind": "signal"}, "features of type <U32, expected numbers"),
    ],
)
def test_what_is_open_or_wrong_is_said(x, options, says, tmp_path):
    with pytest.raises(UserError) as caught:
        read(archive(tmp_path, x), **options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"kind": "sound"},
            "no kind of data 'sound' (choices: image, signal, table, text, volume)",
        ),
        ({"kind": "signal", "channels": "middle"}, "no place of the channels 'middle'"),
        ({"channels": "last"}, "set kind='signal' or kind='volume'"),
    ],
)
def test_wrong_options_from_python(options, says):
    with pytest.raises(UserError) as caught:
        as_dataset((X, Y), **options)
    assert says in str(caught.value)


def test_floats_from_python_stay_as_they_are_unless_a_kind_is_named():
    plain = as_dataset((SCANS, SCAN_Y))
    assert plain.kind == "volume" and plain.mean == ()
    assert torch.equal(batch(plain), plain.train.x)
    image = as_dataset((X, Y), kind="image")
    assert (image.kind, image.shape, image.mean) == ("image", (1, 3, 20), ())
    scans = as_dataset((BYTES[:, None], np.arange(30) % 2))
    assert scans.kind == "volume" and len(scans.mean) == 1


def test_a_test_split_that_repeats_training_samples_is_a_problem():
    dataset = as_dataset((X, Y), test=(X[:9], Y[:9]), kind="signal")
    assert problems_and_notes(dataset) == [
        "problem: 9 of 9 test samples occur in the training split too"
    ]


def test_predictions_take_raw_samples_with_or_without_the_axis_of_channels():
    x, y = signals(channels=1)
    x = 1000 + 50 * x
    settings = {"clients": 2, "per_round": 2, "partition": "iid", "rounds": 12, "lr": 0.1}
    run = fl.Experiment("fedavg", "cnn1d(width=8)", (x[:, 0], y), kind="signal", **settings).run()
    predicted = run.predict(x)
    assert (predicted == run.predict(x[:, 0])).all()
    assert (predicted == y).mean() > 0.8
    with pytest.raises(UserError, match="the samples have shape"):
        run.predict(x[:, 0, :7])
