"""HuggingFace data sets from folders and from Python; names on the Hub without network."""

from __future__ import annotations

import io
import sys
import time

import numpy as np
import pytest
import torch

import fedloom as fl
from fedloom.core.errors import UserError
from fedloom.data import store
from fedloom.data.from_python import as_dataset
from fedloom.data.sources import hf_open, read

datasets = pytest.importorskip("datasets")
pyarrow = pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (30, 8, 6), dtype=np.uint8)
LABELS = [i % 2 for i in range(30)]
SITES = [f"s{i % 3}" for i in range(30)]
NAMES = datasets.ClassLabel(names=["dog", "cat", "owl"])  # not sorted, and no owl occurs


@pytest.fixture(autouse=True)
def quiet():
    datasets.disable_progress_bars()


def dataset(columns, **features):
    made = datasets.Dataset.from_dict(columns)
    return made.cast(datasets.Features({**made.features, **features})) if features else made


@pytest.fixture
def images():
    columns = {"image": [Image.fromarray(p) for p in PIXELS], "label": LABELS, "site": SITES}
    return dataset(columns, label=NAMES)


@pytest.fixture
def table():
    columns = {
        "age": [20.0 + i for i in range(29)] + [None],
        "smoker": [i % 4 == 0 for i in range(30)],
        "city": ["Oslo", "Bonn", "Rome"] * 10,
        "site": SITES,
        "ill": ["yes" if label else "no" for label in LABELS],
    }
    return dataset(columns)


def saved(data, tmp_path):
    data.save_to_disk(tmp_path / "saved")
    return f"hf:{tmp_path / 'saved'}"


# Folders -----------------------------------------------------------------------------------------


def test_images_with_class_names_and_clients(images, tmp_path):
    found = read(saved(images, tmp_path), client="site")
    assert (found.kind, found.shape, found.classes) == ("image", (1, 8, 6), ("dog", "cat", "owl"))
    assert found.users == ("s0", "s1", "s2") and len(found.mean) == 1
    everything = torch.cat([found.train.x, found.test.x]).flatten(1).tolist()
    assert sorted(everything) == sorted(PIXELS.reshape(30, -1).tolist())
    assert len(found.test) == 6


def test_splits_of_a_folder_are_recognised_also_without_the_prefix(images, tmp_path):
    both = datasets.DatasetDict({"train": images, "validation": images.select(range(5))})
    both.save_to_disk(tmp_path / "both")
    for path in (tmp_path / "both", f"hf:{tmp_path / 'both'}"):
        found = read(path)
        assert (len(found.train), len(found.test)) == (30, 5)
        assert found.about["test split"] == "the split validation"
    assert len(read(tmp_path / "both", test="hold-out").test) == 6
    swapped = read(tmp_path / "both", train="validation", test="train")
    assert (len(swapped.train), len(swapped.test)) == (5, 30)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json", "arrow"])
def test_files_in_a_folder(table, tmp_path, suffix):
    folder = tmp_path / "data"
    folder.mkdir()
    for split, part in (("train", table.select(range(20))), ("test", table.select(range(20, 30)))):
        file = folder / f"{split}-00000-of-00001.{suffix}"
        if suffix == "arrow":
            content = part.flatten_indices().data.table
            with pyarrow.ipc.new_file(file, content.schema) as writer:
                writer.write_table(content)
        else:
            getattr(part, f"to_{suffix}")(str(file))
    found = read(f"hf:{tmp_path}", target="ill", client="site")
    assert (found.kind, len(found.train), len(found.test)) == ("table", 20, 10)
    assert found.classes == ("no", "yes") and len(found.users) == 3


def test_tables_are_standardised_as_those_of_files_are(table, tmp_path):
    table.to_csv(str(tmp_path / "plain.csv"))
    plain = read(tmp_path / "plain.csv", target="ill", client="site", categorical="smoker")
    found = read(saved(table, tmp_path), target="ill", client="site", categorical="smoker")
    assert found.shape == plain.shape == (7,)  # age, age is missing, smoker x 2, city x 3
    assert torch.allclose(found.train.x[:, :2], plain.train.x[:, :2])
    assert torch.equal(found.train.y, plain.train.y)
    assert read(saved(table, tmp_path), target="ill", drop="city, site").shape == (3,)


def test_lists_are_signals_and_arrays_what_their_shape_says(tmp_path):
    x = RNG.normal(5, 2, (30, 2, 12)).astype(np.float32)
    columns = {"ecg": x.tolist(), "y": LABELS}
    path = saved(dataset(columns, ecg=datasets.Array2D((2, 12), "float32")), tmp_path)
    with pytest.raises(UserError, match="the shape does not tell which; set kind=signal"):
        read(path)
    found = read(path, kind="signal")
    assert (found.kind, found.shape, len(found.mean)) == ("signal", (2, 12), 2)
    stored = torch.cat([found.train.x, found.test.x])
    assert sorted(stored.flatten(1).tolist()) == sorted(x.reshape(30, -1).tolist())
    one = saved(dataset({"ecg": x[:, 0].tolist(), "y": LABELS}), tmp_path / "one")
    assert (read(one).kind, read(one).shape) == ("signal", (1, 12))
    assert (read(one, kind="table").kind, read(one, kind="table").shape) == ("table", (12,))
    pixels = dataset({"img": PIXELS.tolist(), "y": LABELS}, img=datasets.Array2D((8, 6), "uint8"))
    assert read(saved(pixels, tmp_path / "pixels")).kind == "image"


def test_text_is_for_the_next_character(tmp_path):
    source = "to be or not to be that is the question"
    windows = {"x": [source[i : i + 5] for i in range(30)], "y": [source[i + 5] for i in range(30)]}
    path = saved(dataset({**windows, "who": SITES}), tmp_path)
    found = read(path, kind="text", client="who", drop="")
    assert (found.kind, found.shape, found.users) == ("text", (5,), ("s0", "s1", "s2"))
    first = "".join(found.classes[c] for c in found.train.x[0].tolist())
    assert first == source[:5] and found.classes[found.train.y[0]] == source[5]
    reviews = {"text": [f"review {i}: a long and free text" for i in range(30)], "label": LABELS}
    path = saved(dataset(reviews), tmp_path / "reviews")
    with pytest.raises(UserError, match=r"free text, .* no model that classifies texts"):
        read(path)
    with pytest.raises(UserError, match="other labels of texts are not supported"):
        read(path, kind="text")


def test_it_is_stored_and_trained_on(images, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_HOME", str(tmp_path / "home"))
    store.add("pets", saved(images, tmp_path), options={"client": "site", "size": 8})
    settings = {"partition": "user", "clients": 0, "per_round": 3, "rounds": 1}
    assert 0 <= fl.Experiment("fedavg", "mlp(width=4)", "pets", **settings).run().accuracy <= 1


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({}, {"target": "lable"}, "did you mean 'label'?"),
        ({}, {"client": "hospital"}, "no column 'hospital' in "),
        ({}, {"input": "site"}, "Value('string'), expected images, lists or arrays"),
        ({}, {"test": "tset"}, "no split 'tset' in "),
        ({}, {"config": "plain"}, "leave config= out"),
        ({"label": [-1] * 30}, {}, "30 samples without a label (the first is row 0)"),
        ({"label": [0.5] * 30}, {}, "set task=regression"),
        ({"site": [None, *SITES[1:]]}, {"client": "site"}, "1 rows without a client"),
        ({"site": [str(i) for i in range(30)]}, {"client": "site"}, "30 different values"),
        ({"more": PIXELS.tolist(), "image": PIXELS.tolist()}, {}, "name it with input=COLUMN"),
        ({"image": [[0.0] * (i % 3 + 1) for i in range(30)]}, {}, "lists of several lengths"),
    ],
)
def test_what_is_wrong_is_said(columns, options, says, images, tmp_path):
    for name, values in columns.items():
        images = images.remove_columns([c for c in [name] if c in images.features])
        images = images.add_column(name, values)
    if columns.get("label") == [-1] * 30:
        images = images.cast_column("label", NAMES)
    with pytest.raises(UserError) as caught:
        read(saved(images, tmp_path), **options)
    assert says in str(caught.value)


# Files of strangers ------------------------------------------------------------------------------


def test_no_script_of_a_data_set_runs(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "bad.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match=r"found bad.py, expected what save_to_disk writes"):
        read(f"hf:{tmp_path / 'bad'}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json", "data-00000-of-00001.arrow"])
def test_damaged_files_end_in_a_message(images, tmp_path, name):
    path = saved(images, tmp_path)
    (tmp_path / "saved" / name).write_bytes(b"nonsense")
    with pytest.raises(UserError, match="no readable data set"):
        read(path)


def test_images_are_never_fetched_from_elsewhere(tmp_path):
    rows = [{"bytes": None, "path": "https://example.org/cat.png"}] * 30
    features = datasets.Features({"image": datasets.Image(decode=False), "label": NAMES})
    made = datasets.Dataset.from_dict({"image": rows, "label": LABELS}, features=features)
    with pytest.raises(UserError, match="instead of an image in row 0"):
        as_dataset(made.cast_column("image", datasets.Image()))


def test_a_huge_image_is_refused_before_it_is_decoded(tmp_path):
    stream = io.BytesIO()
    Image.new("1", (9000, 9000)).save(stream, "PNG")
    rows = [{"bytes": stream.getvalue(), "path": None}] * 4
    features = datasets.Features({"image": datasets.Image(), "label": NAMES})
    made = datasets.Dataset.from_dict({"image": rows, "label": [0, 1] * 2}, features=features)
    with pytest.raises(UserError, match="an image of 9000 x 9000 pixels"):
        as_dataset(made)


# The Hub -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offline", [True, False])
def test_a_name_without_network_ends_in_a_message_within_seconds(monkeypatch, offline):
    """With HF_HUB_OFFLINE, and with an address at which nobody answers."""
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1" if offline else "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets, "load_dataset", refuse)
    started = time.monotonic()
    with pytest.raises(UserError, match=r"the Hub cannot be reached .* give --from hf:FOLDER"):
        read("hf:someone/something")
    assert time.monotonic() - started < hf_open.PATIENCE + 2


def refuse(*args, **options):
    raise ConnectionError("no network")


def test_other_errors_of_the_hub_are_passed_on(monkeypatch):
    def fail(*args, **options):
        raise ValueError("Config name is missing.\nPlease pick one")

    monkeypatch.setattr(hf_open, "_hub_answers", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(UserError, match=r"Config name is missing. Please .* with config="):
        read("hf:someone/something")


@pytest.mark.parametrize("path", ["hf:", "hf:./nowhere", "hf:/no/where"])
def test_a_folder_that_does_not_exist(path):
    with pytest.raises(UserError, match="no folder"):
        read(path)


def test_the_missing_library_is_named(monkeypatch, tmp_path, images):
    path = saved(images, tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r'pip install "fedloom\[huggingface\]"'):
        read(path)


# From Python -------------------------------------------------------------------------------------


def test_objects_are_taken_like_dataframes(table):
    frame = table.to_pandas()
    options = {"target": "ill", "client": "site"}
    found, plain = as_dataset(table, **options), as_dataset(frame, **options)
    assert torch.equal(found.train.x, plain.train.x) and found.name == plain.name
    both = datasets.DatasetDict({"train": table, "test": table.select(range(6))})
    assert len(as_dataset(both, **options).test) == 6
    assert len(as_dataset(table, test=table.select(range(4)), **options).test) == 4
    assert len(as_dataset(both, test=table.select(range(4)), **options).test) == 4
    ids = as_dataset(table.remove_columns("site"), target="ill", client_ids=SITES)
    assert ids.users == ("s0", "s1", "s2")


def test_an_experiment_on_images(images):
    exp = fl.Experiment("fedavg", "mlp(width=4)", images, client="site", per_round=3, rounds=1)
    assert exp.run().classes == ("dog", "cat", "owl")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"client": "site", "client_ids": SITES}, "client_ids= cannot be used here"),
        ({"target": "x"}, "no column 'x' in data"),
        ({"kind": "text"}, "no kind of data 'text'"),
        ({"test": (PIXELS, LABELS)}, "expected a HuggingFace Dataset as in data"),
    ],
)
def test_wrong_options_from_python(images, options, says):
    with pytest.raises(UserError) as caught:
        as_dataset(images, **options)
    assert says in str(caught.value)


def test_a_streamed_data_set_is_rejected(images):
    with pytest.raises(UserError, match="load it without streaming=True"):
        as_dataset(images.to_iterable_dataset())
