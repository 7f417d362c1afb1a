"""`fedloom export`: what is written is what was scored, by weights and as a program; what cannot be written is said."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from cli.talk import fedloom, run
from fedloom.core.evaluate import count_correct
from fedloom.core.params import sha256
from fedloom.experiment.reopen import reopened

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
    """Every client, hit for hit; read with safetensors alone."""
    own = printed(runs[method])["personal"]
    assert len(own["hits"]) == 8
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
            assert found.hits.tolist() == own["hits"][client] and found.seen.tolist() == own["seen"]
            assert said.json["weights_sha256"] == sha256(
                {n: weights[n] for n in chain.state_dict()}
            )
            assert said.json["accuracy"] == found.accuracy
            seen.add(said.json["weights_sha256"])
    assert len(seen) == 3  # a model of its own for everyone


def test_the_scores_of_a_client_are_those_by_hand(runs: dict[str, Path], desk: Path) -> None:
    facts = fedloom(
        "export", runs["ditto"], "--client", 5, "--out", "taken", "--weights-only", "--json"
    ).json
    own = printed(runs["ditto"])["personal"]
    with reopened(runs["ditto"], lambda warning: None) as opened:
        counts = opened.prepared.counts[5].tolist()
    recall = [h / n for h, n in zip(own["hits"][5], own["seen"], strict=True)]
    has = [c for c, n in enumerate(counts) if n]
    assert facts["recall"] == pytest.approx(sum(recall[c] for c in has) / len(has))
    assert facts["weighted"] == pytest.approx(sum(recall[c] * counts[c] for c in has) / sum(counts))
    assert facts["samples"] == sum(counts) and facts["files"] == [
        "taken/client-5.safetensors",
        "taken/client-5.json",
    ]
    assert json.loads(Path("taken/client-5.json").read_text()) == {
        k: v for k, v in facts.items() if k != "files"
    }


def test_a_program_runs_alone_on_any_number_of_samples(runs: dict[str, Path], desk: Path) -> None:
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
        and said["input"]["type"] == "float32"
        and len(said["classes"]) == 4
    )


def test_the_model_of_the_server(runs: dict[str, Path], desk: Path) -> None:
    result = printed(runs["fedavg"])
    said = fedloom("export", runs["fedavg"], "--out", "taken", "--weights-only", "--json")
    assert (
        said.json["weights_sha256"] == result["weights_sha256"]
        and said.json["accuracy"] == result["accuracy"]
    )
    assert (
        Path("taken/global.safetensors").exists()
        and "recall" not in said.json
        and "note" not in said.err
    )
    told = fedloom("export", runs["ditto"], "--out", "taken", "--weights-only").flat
    assert (
        "note: 'ditto' gives every client a model of its own, and this is the server's; name a client with --client"
        in told
    )


def test_a_client_without_a_model_of_its_own_has_the_servers(
    runs: dict[str, Path], desk: Path
) -> None:
    said = fedloom(
        "export", runs["fedavg"], "--client", 4, "--out", "taken", "--weights-only", "--json"
    )
    assert "note: 'fedavg' makes no models for clients, so this is the server's" in said.flat
    assert (
        said.json["weights_sha256"] == printed(runs["fedavg"])["weights_sha256"]
        and Path("taken/client-4.json").exists()
    )


def test_a_run_of_other_code_is_noticed(runs: dict[str, Path], desk: Path) -> None:
    """As if the run had been played by another optimiser of the same name: the result in its folder tells another story."""
    from fedloom.runs.durable_files import seal, unseal

    shutil.copytree(runs["ditto"], "other")
    facts = unseal(Path("other/result.json").read_bytes())
    assert facts is not None
    facts["summary"]["personal"]["hits"][2] = [0, 0, 0, 0]
    Path("other/result.json").write_bytes(seal(facts))
    assert (
        "and 0.0000 in the run" in fedloom("export", "other", "--client", 2, "--weights-only").flat
    )


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (("--client", 8), "--client 8 is not one of the 8 clients; take a number from 0 to 7"),
        (("--client", -1), "--client -1 is not one of the 8 clients"),
    ],
)
def test_clients_that_are_not_there(
    words: tuple[object, ...], piece: str, runs: dict[str, Path], desk: Path
) -> None:
    assert piece in fedloom("export", runs["ditto"], *words, "--out", "taken", code=2).flat
    assert not Path("taken").exists()


def test_runs_that_cannot_be_taken_from(runs: dict[str, Path], desk: Path) -> None:
    shutil.copytree(runs["fedavg"], "early")
    Path("early/result.json").unlink()
    said = fedloom("export", "early", "--out", "taken", code=2).flat
    assert (
        "early is not finished, so its models are not final; go on with `fedloom resume early`"
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


def test_a_model_that_is_no_program(desk: Path) -> None:
    Path("own.py").write_text(BRANCHES)
    run(desk / "odd", "--model", "own.py:odd", rounds=1)
    said = fedloom("export", "odd", "--out", "taken", code=2).flat
    assert (
        "own.py:odd' cannot be made a program (" in said
        and "add --weights-only" in said
        and not Path("taken").exists()
    )
    fedloom("export", "odd", "--out", "taken", "--weights-only")
    assert {p.name for p in Path("taken").iterdir()} == {"global.safetensors", "global.json"}
