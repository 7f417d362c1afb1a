"""`Run.predict` takes rows of a table as they stand in its file or DataFrame."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedloom as fl
from cli.talk import fedloom

DRAWS = np.random.default_rng(3)
AGE = DRAWS.integers(30, 80, 120)
WARD = DRAWS.choice(["east", "north", "west"], 120)
STAGE = DRAWS.integers(1, 4, 120)
STREET = DRAWS.choice([f"street {i:02}" for i in range(30)], 120)
CHOL = np.where(DRAWS.random(120) < 0.2, np.nan, DRAWS.normal(240, 40, 120).round())
RATE = (220 - AGE + 5 * (WARD == "west") + STAGE).round(1)
TABLE = pd.DataFrame(
    {"age": AGE, "ward": WARD, "stage": STAGE, "chol": CHOL, "street": STREET, "rate": RATE}
)
FEATURES = ["age", "ward", "stage", "chol", "street"]
SETTINGS: dict[str, Any] = {
    "model": "mlp(width=8)",
    "rounds": 2,
    "epochs": 5,
    "task": "regression",
    "partition": "iid",
    "clients": 2,
    "per_round": 2,
}


@pytest.fixture(scope="module")
def added(home: Path) -> Iterator[fl.Run]:
    """A run on the table as `data add` reads it, without a test file: every k-th row is held out"""
    TABLE.to_csv(home / "rates.csv", index=False)
    options = ["target=rate", "task=regression", "categorical=stage"]
    words = [word for option in options for word in ("--option", option)]
    fedloom("data", "add", "rates", "--from", home / "rates.csv", *words)
    yield fl.Experiment(data="rates", **SETTINGS).run()


def answers_on_encoded_rows(run: fl.Run) -> set[float]:
    """What the model says of the test rows as the reader has encoded them."""
    outputs = run.model(run._prepared.dataset.test.x).detach()
    values = run._prepared.simulation.federation.task.predictions(outputs)
    return {round(float(value), 3) for value in values}


def answers(run: fl.Run, rows: Any) -> set[float]:
    return {round(float(value), 3) for value in run.predict(rows)}


@pytest.mark.filterwarnings("ignore:column 'street'")
def test_rows_of_an_added_table_are_encoded_as_it_was(added: fl.Run) -> None:
    by_name = added.predict(TABLE[["rate", *reversed(FEATURES)]])
    in_order = added.predict(TABLE[FEATURES].to_numpy(dtype=object).tolist())
    assert (in_order == by_name).all()
    assert answers_on_encoded_rows(added) <= answers(added, TABLE)
    assert np.abs(by_name - RATE).mean() < 40  # in the units of the data


def test_a_category_that_no_training_row_has_is_said(added: fl.Run) -> None:
    row = [50, "wset", 2, None, "street 01"]
    with pytest.warns(UserWarning, match="column 'ward' has 'wset', which the training rows do"):
        added.predict([row])


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        ([[50, "west", 2]], r"shape \(1, 3\), expected rows of the columns age, ward, stage, chol"),
        ([50, "west", 2, 200, "street 01"], r"found an array of shape \(5,\)"),
        ([["old", "west", 2, 200, "street 01"]], "column 'age': found 'old', expected numbers"),
        ([[np.inf, "west", 2, 200, "street 01"]], "column 'age': found infinity"),
        (TABLE[["age", "ward"]], "the model needs stage, chol, street as well"),
        (pd.concat([TABLE, TABLE[["age"]]], axis=1), "column 'age' twice"),
    ],
)
def test_rows_that_cannot_be_encoded(added: fl.Run, samples: Any, sentence: str) -> None:
    with pytest.raises(fl.UserError, match=sentence):
        added.predict(samples)


@pytest.mark.filterwarnings("ignore:column 'street'")
def test_a_dataframe_from_python_is_encoded_too() -> None:
    small = TABLE.assign(age=TABLE.age / 100, chol=TABLE.chol / 100)
    run = fl.Experiment(data=small, target="rate", **SETTINGS).run()
    assert answers_on_encoded_rows(run) <= answers(run, small)


KINDS: dict[str, Any] = {
    "numbers with gaps as categories": pd.Categorical(
        np.where(DRAWS.random(120) < 0.2, None, STAGE)
    ),
    "floats as categories": pd.Categorical(STAGE.astype(float)),
    "spaces": pd.Series(np.where(STAGE > 1, " a", "b ")),
    "words for missing values": pd.Series(np.where(STAGE > 1, "NA", "nan")),
    "nullable integers": pd.Series(STAGE).astype("Int64").where(STAGE > 1),
    "nullable booleans": pd.Series(STAGE > 1).astype("boolean").where(STAGE < 3),
    "objects": pd.Series([None, *STAGE[1:]], dtype=object),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", KINDS.values(), ids=KINDS.keys())
def test_columns_of_any_type_are_encoded_as_in_training(values: Any) -> None:
    """As a DataFrame and as rows of Python objects, in which pandas has NA for what is missing."""
    small = TABLE[["age", "rate"]].assign(stage=values, age=TABLE.age / 100)
    run = fl.Experiment(data=small, target="rate", **SETTINGS).run()
    assert answers_on_encoded_rows(run) <= answers(run, small)
    rows = small[["age", "stage"]].to_numpy(dtype=object)
    assert (run.predict(rows) == run.predict(small)).all()


def test_a_column_of_objects_is_one_of_numbers_if_it_holds_nothing_else() -> None:
    """Its values would be categories, or too many for categories."""
    small = TABLE[["age", "stage", "rate"]]
    settings = {**SETTINGS, "target": "rate"}
    datasets = [
        fl.Experiment(data=data, **settings).inputs.dataset
        for data in (small, small.astype(object))
    ]
    assert len({dataset.name for dataset in datasets if dataset is not None}) == 1
    words = small.assign(age=[f"{n}.5" for n in range(120)])
    with pytest.raises(fl.UserError, match=r"column 'age'.* turn its text into numbers, or leave"):
        fl.Experiment(data=words, **settings)


def test_classes_of_an_archive_are_predicted_from_raw_rows(home: Path) -> None:
    x = DRAWS.normal(size=(90, 2)) * [1, 1000] + [5, 70000]
    y = (x[:, 1] > 70000).astype(int)
    np.savez(home / "wide.npz", x=x, y=y)
    fedloom("data", "add", "wide", "--from", home / "wide.npz")
    settings = {**SETTINGS, "task": "classification", "rounds": 5, "lr": 0.1}
    assert (fl.Experiment(data="wide", **settings).run().predict(x) == y).mean() > 0.9


def test_a_table_that_an_older_version_stored_is_refused(home: Path) -> None:
    from fedloom.data import store

    x = DRAWS.normal(size=(90, 2))
    np.savez(home / "old.npz", x=x, y=(x[:, 1] > 0).astype(int))
    dataset = store.add("old", home / "old.npz")
    del dataset.about["columns"]
    store.save(dataset, replace=True)
    run = fl.Experiment(data="old", **{**SETTINGS, "task": "classification"}).run()
    with pytest.raises(fl.UserError, match="fedloom data add old --from PATH --replace"):
        run.predict(x)
