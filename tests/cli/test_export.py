"""`fedloom export`: exported weights and programs score as in the run; failures have messages."""

import io
import json
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import fedloom as fl
from cli.talk import fedloom, run
from fedloom.core.evaluate import count_correct
from fedloom.core.params import sha256
from fedloom.experiment.reopen import reopened
from fedloom.inspect.pickled_parts import pickled_parts

METHODS = (
    "finetune(lr=0.1, batch=10)",
    "ditto",
    "pfedme",
    "fedper",
    "fedavgm+ros(lr=0.1, batch=10)",
)


@pytest.fixture(scope="module")
def runs(home: Path) -> dict[str, Path]:
    """A finished run of each method, with what it printed beside it."""
    for method in (*METHODS, "fedavg"):
        result = run(home / method, "--method", method, "--seed", 2)
        (home / f"{method}.json").write_text(json.dumps(result))
    return {method: home / method for method in (*METHODS, "fedavg")}


def printed(folder: Path) -> dict[str, Any]:
    return dict(json.loads(folder.with_name(f"{folder.name}.json").read_text()))


@pytest.mark.parametrize("method", METHODS)
def test_weights_read_back_score_as_they_did_in_the_run(
    method: str, runs: dict[str, Path], desk: Path
) -> None:
    """The same correct predictions per class; weights are read with safetensors alone."""
    scores = printed(runs[method])["personal_models"]
    assert len(scores["correct"]) == 8
    seen = set()
    with reopened(runs[method], lambda warning: None) as opened:
        federation = opened.prepared.simulation.federation
        for client in (0, 3, 7):
            said = fedloom(
                "export",
                runs[method],
                "--client",
                client,
                "--out",
                "taken",
                "--weights-only",
                "--json",
            )
            assert "note" not in said.err
            weights = safetensors.torch.load_file(f"taken/client-{client}.safetensors")
            chain = federation.build()
            chain.load_state_dict(weights)
            found = count_correct(chain, federation.test, federation.classes)
            assert found.hits.tolist() == scores["correct"][client]
            assert found.seen.tolist() == scores["test_samples"]
            assert said.json["weights_sha256"] == sha256(
                {n: weights[n] for n in chain.state_dict()}
            )
            assert said.json["accuracy"] == found.accuracy
            seen.add(said.json["weights_sha256"])
    assert len(seen) == 3  # every client has its own model


def test_the_scores_of_a_client_equal_those_computed_by_hand(
    runs: dict[str, Path], desk: Path
) -> None:
    facts = fedloom(
        "export", runs["ditto"], "--client", 5, "--out", "taken", "--weights-only", "--json"
    ).json
    scores = printed(runs["ditto"])["personal_models"]
    with reopened(runs["ditto"], lambda warning: None) as opened:
        counts = opened.prepared.counts[5].tolist()
    recall = [h / n for h, n in zip(scores["correct"][5], scores["test_samples"], strict=True)]
    has = [c for c, n in enumerate(counts) if n]
    assert facts["mean_class_recall"] == pytest.approx(sum(recall[c] for c in has) / len(has))
    weighted = sum(recall[c] * counts[c] for c in has) / sum(counts)
    assert facts["label_weighted_accuracy"] == pytest.approx(weighted)
    assert facts["training_samples"] == sum(counts) and facts["files"] == [
        "taken/client-5.safetensors",
        "taken/client-5.json",
    ]
    assert json.loads(Path("taken/client-5.json").read_text()) == {
        k: v for k, v in facts.items() if k != "files"
    }


def test_a_program_runs_without_fedloom_on_any_batch_size(
    runs: dict[str, Path], desk: Path
) -> None:
    said = fedloom("export", runs["finetune(lr=0.1, batch=10)"], "--client", 1, "--json").json
    folder = runs["finetune(lr=0.1, batch=10)"] / "export"
    assert said["files"] == [
        str(folder / f"client-1.{kind}") for kind in ("safetensors", "pt2", "json")
    ]
    program = torch.export.load(folder / "client-1.pt2").module()
    with reopened(runs["finetune(lr=0.1, batch=10)"], lambda warning: None) as opened:
        split, federation = opened.prepared.dataset.test, opened.prepared.simulation.federation
        chain = federation.build()
    chain.load_state_dict(safetensors.torch.load_file(folder / "client-1.safetensors"))
    scale, shift = (torch.tensor(said["input"][k]).view(-1, 1, 1) for k in ("scale", "shift"))
    for count in (1, 3, 80):
        x = split.x[:count].float() * scale + shift  # from pixels, by what the JSON says
        torch.testing.assert_close(program(x), chain.eval()(x))
    assert (
        said["input"]["shape"] == [1, 8, 8]
        and said["input"]["dtype"] == "float32"
        and len(said["classes"]) == 4
    )


def test_pickles_in_a_program_are_found_and_reported(
    runs: dict[str, Path], desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, pickled = io.BytesIO(), io.BytesIO()
    torch.save({"constant": 1}, pickled)
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("archive/data/constants.pt", pickled.getvalue())
        archive.writestr("archive/plain.pkl", pickle.dumps([1, "a"]))
        archive.writestr("archive/weights", b"\x80\x00 not a pickle.")
    assert pickled_parts(saved.getvalue()) == ["archive/data/constants.pt", "archive/plain.pkl"]
    monkeypatch.setattr("fedloom.inspect.export._program", lambda *args: saved.getvalue())
    said = fedloom("export", runs["fedavg"], "--out", "taken")
    assert (
        "note: global.pt2 holds pickles" in said.flat and "(archive/data/constants.pt" in said.flat
    )
    assert "--weights-only leaves it out" in said.flat


def test_exported_files_have_the_usual_permissions(runs: dict[str, Path], desk: Path) -> None:
    fedloom("export", runs["fedavg"], "--out", "taken", "--weights-only")
    (desk / "usual").touch()
    modes = {p.stat().st_mode for p in (desk / "taken").iterdir()}
    assert modes == {(desk / "usual").stat().st_mode}


def test_a_link_in_the_run_folder_is_not_followed(runs: dict[str, Path], desk: Path) -> None:
    shutil.copytree(runs["fedavg"], desk / "run")
    (desk / "target").mkdir()
    (desk / "run/export").symlink_to(desk / "target")
    said = fedloom("export", "run", "--weights-only", code=2)
    assert "run/export: it is a symbolic link, not a real folder" in said.flat
    assert not list((desk / "target").iterdir())


def test_a_program_holds_neither_pickles_nor_samples(runs: dict[str, Path], desk: Path) -> None:
    fedloom("export", runs["fedavg"], "--out", "taken")
    with reopened(runs["fedavg"], lambda warning: None) as opened:
        x, _ = opened.prepared.simulation.federation.test[0]
    with zipfile.ZipFile("taken/global.pt2") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert any("weight" in name for name in contents)
    for name, content in contents.items():
        assert not zipfile.is_zipfile(io.BytesIO(content)), name  # what torch.save writes
        assert not (content.startswith(b"\x80") and content.endswith(b".")), name  # a pickle
        assert x[0].numpy().tobytes() not in content, name


def test_the_global_model(runs: dict[str, Path], desk: Path) -> None:
    result = printed(runs["fedavg"])
    said = fedloom("export", runs["fedavg"], "--out", "taken", "--weights-only", "--json")
    assert (
        said.json["weights_sha256"] == result["weights_sha256"]
        and said.json["accuracy"] == result["accuracy"]
    )
    assert (
        Path("taken/global.safetensors").exists()
        and "mean_class_recall" not in said.json
        and "note" not in said.err
    )
    notes = fedloom("export", runs["ditto"], "--out", "taken", "--weights-only").flat
    assert (
        "note: 'ditto' gives every client its own model, and this is the global one; "
        "choose a client with --client" in notes
    )


def test_a_client_without_a_personal_model_has_the_global_one(
    runs: dict[str, Path], desk: Path
) -> None:
    said = fedloom(
        "export", runs["fedavg"], "--client", 4, "--out", "taken", "--weights-only", "--json"
    )
    assert "note: 'fedavg' does not personalise, so client 4 has the global model" in said.flat
    assert (
        said.json["weights_sha256"] == printed(runs["fedavg"])["weights_sha256"]
        and Path("taken/client-4.json").exists()
    )


def test_another_accuracy_than_in_the_run_is_reported(runs: dict[str, Path], desk: Path) -> None:
    """As if the run had been made with other code: its folder records another accuracy."""
    from fedloom.runs.durable_files import seal, unseal

    shutil.copytree(runs["ditto"], "other")
    facts = unseal(Path("other/result.json").read_bytes())
    assert facts is not None
    facts["summary"]["personal_models"]["correct"][2] = [0, 0, 0, 0]
    Path("other/result.json").write_bytes(seal(facts))
    assert (
        "and was 0.0000 in the run"
        in fedloom("export", "other", "--client", 2, "--weights-only").flat
    )


@pytest.fixture(scope="module")
def clinics(home: Path) -> None:
    """Data of numbers from three clients, with test samples of their own."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(120, 3))
    of = np.repeat(["a", "b", "c"], [70, 30, 20])
    y = x @ [1.0, 2.0, 3.0]
    for name, target, task in (("pressure", y, "regression"), ("ill", y > 0, "classification")):
        fl.data.save(fl.data.as_dataset((x, target), client_ids=of, task=task, name=name))


@pytest.mark.parametrize("data", ["pressure", "ill"])
@pytest.mark.parametrize("clients", [0, 2])
def test_models_that_were_scored_on_own_test_samples_score_the_same(
    data: str, clients: int, clinics: None, desk: Path
) -> None:
    """Two of the three clients have a part of the test samples only."""
    task = {"pressure": "regression", "ill": "classification"}[data]
    words = ("--data", data, "--partition", "user", "--clients", clients, "--rounds", 2)
    more = ("--model", "mlp(width=4)", "--method", "ditto", "--set", f"task={task}")
    fedloom("run", *words, *more, "--set", "evaluate.on=own", "--per-round", 2, "--out", "run")
    for client in (0, 1):
        said = fedloom("export", "run", "--client", client, "--out", "taken", "--weights-only")
        assert "another machine" not in said.flat
    said = fedloom("export", "run", "--out", "taken", "--weights-only")
    assert "another machine" not in said.flat


def test_a_program_takes_any_batch_if_test_samples_come_one_by_one(
    clinics: None, desk: Path
) -> None:
    words = ("--data", "pressure", "--partition", "user", "--clients", 0, "--rounds", 1)
    more = ("--model", "mlp(width=4)", "--set", "task=regression", "--set", "evaluate.batch=1")
    fedloom("run", *words, *more, "--per-round", 2, "--out", "run")
    fedloom("export", "run", "--out", "taken")
    program = torch.export.load("taken/global.pt2").module()
    assert [program(torch.zeros(n, 3)).shape for n in (1, 2, 7)] == [(1, 1), (2, 1), (7, 1)]


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (("--client", 8), "client 8 is not one of the 8 clients; choose a number from 0 to 7"),
        (("--client", -1), "client -1 is not one of the 8 clients"),
    ],
)
def test_clients_that_do_not_exist(
    words: tuple[object, ...], piece: str, runs: dict[str, Path], desk: Path
) -> None:
    assert piece in fedloom("export", runs["ditto"], *words, "--out", "taken", code=2).flat
    assert not Path("taken").exists()


def test_runs_that_cannot_be_exported(runs: dict[str, Path], desk: Path) -> None:
    shutil.copytree(runs["fedavg"], "early")
    Path("early/result.json").unlink()
    said = fedloom("export", "early", "--out", "taken", code=2).flat
    assert (
        "early is not finished, so its models are not final; finish it with `fedloom resume early`"
        in said
    )
    assert "nowhere is not the folder of a run" in fedloom("export", "nowhere", code=2).flat
    Path("file").write_text("")
    assert (
        "file" in fedloom("export", runs["fedavg"], "--out", "file", "--weights-only", code=2).flat
    )
    assert not Path("taken").exists()


BRANCHES = """from torch import nn

class Odd(nn.Module):
    def __init__(self, pixels, classes):
        super().__init__()
        self.head = nn.Linear(pixels, classes)

    def forward(self, x):
        y = self.head(x.flatten(1))
        return y if float(y.detach().sum()) > 0 else 2 * y

def odd(shape, classes):
    return Odd(shape[0] * shape[1] * shape[2], classes)
"""


def test_a_model_that_cannot_be_traced(desk: Path) -> None:
    Path("own.py").write_text(BRANCHES)
    run(desk / "odd", "--model", "own.py:odd", rounds=1)
    said = fedloom("export", "odd", "--out", "taken", code=2).flat
    assert (
        "own.py:odd' cannot be exported as a program (" in said
        and "add --weights-only" in said
        and not Path("taken").exists()
    )
    fedloom("export", "odd", "--out", "taken", "--weights-only")
    assert {p.name for p in Path("taken").iterdir()} == {"global.safetensors", "global.json"}


def test_a_program_of_numbers_answers_in_the_units_of_the_data(desk: Path) -> None:
    """From raw rows, by what the JSON says, to the answers of `Run.predict`."""
    draws = np.random.default_rng(0)
    age, rate = draws.integers(20, 80, 60), draws.normal(150, 20, 60).round(1)
    lines = [f"{a},{'ab'[a % 2]},{r}" for a, r in zip(age.tolist(), rate.tolist(), strict=True)]
    Path("rates.csv").write_text("\n".join(["age,ward,rate", *lines]) + "\n")
    options = ("--option", "target=rate", "--option", "task=regression")
    fedloom("data", "add", "rates", "--from", "rates.csv", *options)
    settings = ("--set", "task=regression", "--set", "sample.per_round=2", "--rounds", 2)
    words = ("--data", "rates", "--partition", "iid", "--clients", 2, "--model", "mlp(width=4)")
    fedloom("run", *words, *settings, "--out", "rates")
    said = fedloom("export", "rates", "--out", "taken", "--json").json
    years, *wards = said["input"]["columns"]
    assert [years["name"], *(ward["name"] for ward in wards)] == ["age", "ward=a", "ward=b"]
    rows = [
        [(a - years["mean"]) / years["std"], w == "a", w == "b"] for a, w in ((63, "a"), (67, "b"))
    ]
    program = torch.export.load("taken/global.pt2").module()
    answers = program(torch.tensor(rows, dtype=torch.float32)).detach()
    expected = fl.open("rates").predict([[63, "a"], [67, "b"]])
    assert answers[:, 0].tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    assert abs(float(answers.mean()) - 150) < 40
    assert "in the units of the data" in said["output"]["is"]
    assert "median stands for a missing value" in said["input"]["expects"]
    assert said["output"]["mean"] == pytest.approx([150], abs=10)


def test_a_program_of_classes_is_that_of_the_model_alone(runs: dict[str, Path], desk: Path) -> None:
    said = fedloom("export", runs["fedavg"], "--out", "taken", "--json").json
    assert "mean" not in said["output"] and said["input"]["expects"].startswith("bytes")
    names = {name for name, _ in torch.export.load("taken/global.pt2").module().named_parameters()}
    assert names == set(safetensors.torch.load_file("taken/global.safetensors"))
