"""`fedloom analyze`: a tiny run looked into, the figures checked against the run, and folders that are no good."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli.talk import fedloom, run
from fedloom.core.key import Key
from fedloom.experiment.reopen import reopened
from fedloom.inspect.replay import training_samples

PARTS = ["eigen", "trace", "diagonal", "pairs", "landscape", "drift"]
QUICK = ("--samples", 40, "--probes", 12)


@pytest.fixture(scope="module")
def finished(home: Path) -> Path:
    run(home / "finished", "--method", "scaffold")
    return home / "finished"


@pytest.fixture(scope="module")
def looked(finished: Path) -> dict[str, Any]:
    return dict(fedloom("analyze", finished, *QUICK, "--json").json)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_all_parts_are_there_and_kept(looked: dict[str, Any], finished: Path) -> None:
    place = finished / "analysis"
    assert [name for name in looked if name in PARTS] == PARTS and looked["cut"] == []
    assert json.loads((place / "analysis.json").read_text()) == {
        k: v for k, v in looked.items() if k != "out"
    }
    assert looked["out"] == str(place) and {p.name for p in place.iterdir()} == {
        "analysis.json",
        "analysis.npz",
        "landscape.png",
    }
    with np.load(place / "analysis.npz", allow_pickle=False) as arrays:
        assert arrays["eigenvectors"].shape == (5, looked["parameters"])
        assert arrays["diagonal"].shape == arrays["diagonal_error"].shape == (looked["parameters"],)
        assert arrays["landscape_loss"][10, 10] == pytest.approx(looked["loss"], rel=1e-5)


def test_figures_hang_together(looked: dict[str, Any]) -> None:
    trace, eigen, diagonal = looked["trace"], looked["eigen"], looked["diagonal"]
    assert eigen["values"] == sorted(eigen["values"], key=abs, reverse=True)
    assert all(r < 0.02 * abs(eigen["values"][0]) for r in eigen["residuals"])
    both = np.hypot(trace["hutchinson"]["error"], trace["hutch++"]["error"])
    assert abs(trace["hutchinson"]["value"] - trace["hutch++"]["value"]) < 5 * both
    assert sum(t["value"] for t in diagonal["per_tensor"].values()) == pytest.approx(
        trace["hutchinson"]["value"], rel=1e-5
    )
    share = 1 - 1 / len(looked["pairs"]["clients"])
    gap = looked["pairs"]["per_tensor"]["H_N"]
    assert gap["full"] == pytest.approx(share * gap["pairs"]) and gap["error"] > 0


def test_the_loss_and_the_accuracy_are_those_of_the_run(
    looked: dict[str, Any], finished: Path
) -> None:
    result = json.loads((finished / "result.json").read_text())["summary"]
    assert looked["weights_sha256"] == result["weights_sha256"]
    assert looked["drift"]["server"]["accuracy"] == pytest.approx(result["accuracy"])
    assert np.mean(looked["drift"]["server"]["per_class"]) == pytest.approx(
        result["accuracy"]
    )  # as many samples of each class


def test_clients_are_replayed_as_the_run_plays_them(looked: dict[str, Any], finished: Path) -> None:
    """The round after a run's last is not run; its clients and their samples are those of the last one."""
    last = json.loads((finished / "metrics.jsonl").read_text().splitlines()[-1])
    assert (
        looked["pairs"]["clients"]
        == [c["client"] for c in looked["drift"]["clients"]]
        == last["participants"]
    )
    for client in looked["drift"]["clients"]:
        assert (
            client["length"] > 0
            and 0 < client["cosine"] <= 1
            and all(0 < v < 1 + 1e-6 for v in client["cka"].values())
        )


def test_again_is_the_same_and_another_seed_is_not(looked: dict[str, Any], finished: Path) -> None:
    def without_clock(found: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in found.items() if k not in ("seconds", "wish")}

    again = fedloom("analyze", finished, *QUICK, "--json").json
    other = fedloom("analyze", finished, *QUICK, "--seed", 1, "--json").json
    assert without_clock(again) == without_clock(looked)
    assert other["trace"] != looked["trace"] and other["loss"] != looked["loss"]


def test_the_run_is_left_as_it_is(finished: Path, desk: Path) -> None:
    folder = shutil.copytree(finished, desk / "copy")
    before = files(folder)
    fedloom("analyze", folder, *QUICK, "--only", "eigen,drift")
    after = files(folder)
    assert {n: b for n, b in after.items() if not n.startswith("analysis/")} == {
        n: b for n, b in before.items() if not n.startswith("analysis/")
    }
    assert (
        "analysis/landscape.png" not in after
    )  # the folder is of the last analysis, and of no other


def test_a_small_model_is_known_exactly(finished: Path) -> None:
    """With as many probes as weights the trace is that of the dense Hessian, in float64."""
    with reopened(finished, lambda note: None) as opened:
        chain = opened.prepared.simulation.federation.build().double()
        chain.load_state_dict(opened.state.params)
        x, y = training_samples(opened.prepared, 40, Key.root(0).fold("analysis", "samples"))
    weights = {n: p.detach() for n, p in chain.named_parameters()}

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = flat.split([p.numel() for p in weights.values()])
        named = {n: v.view_as(p) for v, (n, p) in zip(parts, weights.items(), strict=True)}
        return torch.nn.functional.cross_entropy(
            torch.func.functional_call(chain, named, (x.double(),)), y
        )

    flat = torch.cat([p.reshape(-1) for p in weights.values()])
    hessian = torch.autograd.functional.hessian(loss, flat)
    found = fedloom(
        "analyze",
        finished,
        "--samples",
        40,
        "--probes",
        300,
        "--only",
        "eigen,trace,diagonal",
        "--double",
        "--json",
    ).json
    assert found["trace"]["hutchinson"]["error"] == 0
    assert found["trace"]["hutchinson"]["value"] == pytest.approx(float(hessian.trace()), rel=1e-9)
    top = torch.linalg.eigvalsh(hessian)
    top = top[top.abs().argsort(descending=True)][:5]
    assert found["eigen"]["values"] == pytest.approx(top.tolist(), rel=1e-3)


def test_the_table(finished: Path) -> None:
    said = fedloom("analyze", finished, *QUICK, "--clients", 2)
    for words in (
        "eigenvalues",
        "trace, hutch++",
        "H_N, per tensor",
        "H_D, true diagonal",
        "landscape",
        "CKA to server",
        "server",
    ):
        assert words in said.out
    assert "probes: 12/12" in said.err and "replay: 2/2" in said.err


def test_out_of_time_is_told(finished: Path) -> None:
    said = fedloom(
        "analyze", finished, "--samples", 240, "--probes", 200, "--minutes", 0.0001, "--json"
    )
    assert (
        set(said.json["cut"]) >= {"eigen", "probes", "hutch++", "landscape"}
        and "out of time in eigen" in said.flat
    )
    assert said.json["eigen"]["values"] == [] and said.json["trace"]["hutchinson"]["probes"] >= 2


def test_an_unfinished_run_is_taken_as_it_stands(finished: Path, desk: Path) -> None:
    folder = shutil.copytree(finished, desk / "half")
    for path in [*folder.glob("checkpoint/*-3.*"), folder / "result.json"]:
        path.unlink()
    said = fedloom("analyze", folder, *QUICK, "--only", "eigen", "--json")
    assert (
        said.json["round"] == 2 and "unfinished; this is its model after round 2 of 3" in said.flat
    )


def test_a_damaged_checkpoint_gives_way_to_the_one_before(finished: Path, desk: Path) -> None:
    folder = shutil.copytree(finished, desk / "broken")
    newest = folder / "checkpoint" / "round-3.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    said = fedloom("analyze", folder, *QUICK, "--only", "eigen", "--json")
    assert said.json["round"] == 2 and "round-3.safetensors is damaged" in said.flat
    assert newest.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "nowhere is not the folder of a run"),
        (("RUN", "--only", "eigne"), "no part of an analysis 'eigne'; did you mean 'eigen'?"),
        (("RUN", "--only", ","), "no part of an analysis is asked for"),
        (("RUN", "--clients", 99), "--clients 99 is more than the 8 clients"),
        (("EMPTY",), "has no checkpoint yet"),
        (("RUN", "--probes", 0), "--probes"),
        (("RUN", "--samples", -4), "--samples"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: tuple[object, ...], sentence: str, finished: Path, desk: Path
) -> None:
    empty = shutil.copytree(finished, desk / "empty")
    for path in (empty / "checkpoint").iterdir():
        path.unlink()
    places = {"RUN": finished, "EMPTY": empty}
    said = fedloom("analyze", *(places.get(str(w), w) for w in words), code=2)
    assert sentence in said.flat


LEAKY = {"samples": "fedmix(size=1)", "hidden states": "fedmix(size=1,at=layer1,every_round=true)"}


@pytest.fixture(scope="module", params=LEAKY.values(), ids=LEAKY)
def leaky(request: pytest.FixtureRequest, home: Path) -> tuple[str, Path]:
    folder = home / f"leaky-{request.param_index}"
    run(folder, "--method", request.param, "--model", "mlp(layers=1,width=16)", rounds=2)
    return request.param, folder


def test_an_average_of_one_shows_it(leaky: tuple[str, Path]) -> None:
    """Each member is a copy of an average, in the space in which it was sent, and no other sample is."""
    method, folder = leaky
    found = fedloom("analyze", folder, "--leak", "--samples", 40, "--json").json
    leak, hidden = found["leak"], "every_round" in method
    assert (
        found["wish"]["only"] == ["leak"]
        and leak["averages"] == 240
        and leak["block"] == ("layer1" if hidden else None)
    )
    tracing = leak["auc"]["tracing"]
    assert leak["auc"]["nearest"]["value"] == 1 and tracing["value"] > 0.5 + 4 * tracing["error"]
    assert (
        leak["psnr"]["members"]["largest"] == pytest.approx(100)
        and leak["psnr"]["others"]["largest"] < 60
    )
    assert (leak["ssim"]["members"]["mean"] is None) is hidden


def test_leaks_are_told_of_which_states(leaky: tuple[str, Path]) -> None:
    method, folder = leaky
    said = fedloom("analyze", folder, "--leak", "--samples", 40).out
    assert "membership, tracing" in said and (
        "of what 'layer1' gives" in " ".join(said.split())
    ) is ("every_round" in method)


def test_a_part_and_leaks(leaky: tuple[str, Path]) -> None:
    found = fedloom(
        "analyze", leaky[1], "--only", "trace", "--leak", "--samples", 40, "--probes", 12, "--json"
    ).json
    assert "trace" in found and "leak" in found and "eigen" not in found


def test_averages_of_many_hidden_states_show_less(home: Path) -> None:
    run(home / "mixed", "--method", "fedmix(at=layer1,every_round=true)", rounds=2)
    found = fedloom("analyze", home / "mixed", "--leak", "--samples", 40, "--json").json["leak"]
    assert found["averages"] == 8 and 0.3 < found["auc"]["nearest"]["value"] < 0.7
    assert found["psnr"]["members"]["largest"] < 60


def test_a_run_without_averages_has_no_leaks(finished: Path) -> None:
    assert "keeps no averages of samples" in fedloom("analyze", finished, "--leak", code=2).flat
