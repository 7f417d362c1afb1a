"""Accuracy on every user's own test samples: `fedloom analyze --only local` against counting."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cli import talk
from fedloom.experiment.reopen import reopened

WRITERS = {
    "ann": 130,
    "bob": 60,
    "cleo": 210,
    "dan": 99,
}  # training samples; each writer has a third as many test samples
LINES = {
    "king": "my kingdom for a horse, a horse " * 4,
    "fool": "ha ha hee hee ho " * 5,
    "ghost": "remember me, remember " * 3,
}


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder with letters of four writers and lines of three roles, and a run on each."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        folder = Path(place)
        patch.setenv("FEDLOOM_HOME", f"{folder}/home")
        letters(folder / "letters.npz")
        (folder / "plays.json").write_text(json.dumps(plays()))
        for name, file, model, clients in (
            ("letters", "letters.npz", "mlp(layers=1, width=4)", 3),
            ("plays", "plays.json", "lstm(embedding=2, layers=1, width=4)", 3),
        ):
            talk.fedloom("data", "add", name, "--from", folder / file)
            words = (
                "--data",
                name,
                "--model",
                model,
                "--clients",
                clients,
                "--per-round",
                2,
                "--partition",
                "user",
                "--engine",
                "inprocess",
            )
            talk.fedloom("run", *words, "--rounds", 2, "--out", folder / f"run of {name}")
        yield folder


def letters(file: Path) -> None:
    draws, split = np.random.default_rng(3), {}
    for part, share in (("train", 1), ("test", 3)):
        users = np.concatenate([[name] * (count // share) for name, count in WRITERS.items()])
        labels = draws.integers(0, 3, len(users))
        noise = draws.integers(0, 120, (len(users), 1, 6, 6))
        split |= {
            f"users_{part}": users,
            f"y_{part}": labels,
            f"x_{part}": (noise + 60 * labels[:, None, None, None]).astype(np.uint8),
        }
    np.savez(file, **split)


def plays() -> dict[str, object]:
    """Samples are five characters, labels the next one."""
    roles = {
        role: {"x": [t[i : i + 5] for i in range(len(t) - 5)], "y": list(t[5:])}
        for role, t in LINES.items()
    }
    return {
        "users": list(roles),
        "num_samples": [len(d["y"]) for d in roles.values()],
        "user_data": roles,
    }


def counted(folder: Path) -> dict[str, tuple[int, float]]:
    """For every user in training: training samples, and accuracy on test samples, one by one."""
    found = {}
    with reopened(folder, lambda warning: None) as run:
        data, model = run.prepared.dataset, run.prepared.model.eval()
        model.load_state_dict(run.state.params)
        rows = set(run.prepared.clients.rows.tolist())
        for number, name in enumerate(data.users):
            trained = sum(
                row in rows for row in (data.train.users == number).nonzero().flatten().tolist()
            )
            test_rows = (data.test.users == number).nonzero().flatten().tolist()
            with torch.no_grad():
                seen = [
                    int(model(run.prepared.clients.normalise(data.test.x[i : i + 1])).argmax())
                    for i in test_rows
                ]
            hits = [label == int(data.test.y[i]) for label, i in zip(seen, test_rows, strict=True)]
            found |= {name: (trained, sum(hits) / len(hits))} if trained and hits else {}
    return found


@pytest.mark.parametrize("name", ["letters", "plays"])
def test_every_user_is_scored_on_their_own_samples(home: Path, name: str) -> None:
    expected = counted(home / f"run of {name}")
    said = talk.fedloom(
        "analyze", home / f"run of {name}", "--only", "local", "--samples", 20, "--json"
    ).json["local"]
    assert {u["user"]: u["training_samples"] for u in said["users"]} == {
        user: trained for user, (trained, _) in expected.items()
    }
    scores = [score for _, score in expected.values()]
    assert [u["accuracy"] for u in said["users"]] == pytest.approx(scores)
    assert (len(scores), said["mean"], said["lowest"]) == (
        3,
        pytest.approx(np.mean(scores)),
        pytest.approx(min(scores)),
    )
    assert said["std"] == pytest.approx(np.std(scores))


def test_users_are_grouped_by_their_training_samples_as_in_table_13(home: Path) -> None:
    expected = counted(home / "run of letters")
    said = talk.fedloom("analyze", home / "run of letters", "--only", "local", "--json").json[
        "local"
    ]["groups"]
    assert [(g["min_training_samples"], g["max_training_samples"]) for g in said] == [
        (0, 99),
        (100, 199),
        (200, None),
    ]
    for group in said:
        low, high = group["min_training_samples"], group["max_training_samples"] or 1000
        scores = [s for n, s in expected.values() if low <= n <= high]
        assert group["users"] == len(scores)
        assert group["mean"] == (pytest.approx(np.mean(scores)) if scores else None)


def test_the_table(home: Path) -> None:
    said = talk.fedloom("analyze", home / "run of letters", "--only", "local").out
    for words in (
        "users with 0 to 99 samples",
        "users with 100 to 199 samples",
        "users with 200 or more samples",
    ):
        assert words in said


def test_data_without_users_are_rejected(home: Path) -> None:
    talk.fedloom("data", "add", "tiny", "--from", talk.write_tiny(home / "tiny.npz"))
    talk.run(home / "of nobody", rounds=1)
    said = talk.fedloom("analyze", home / "of nobody", "--only", "local", code=2).flat
    assert "data 'tiny' have no user ids" in said
