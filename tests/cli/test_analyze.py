"""`fedloom analyze` on a tiny run: figures checked against the run, files, bad options."""

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
def analysis(finished: Path) -> dict[str, Any]:
    return dict(fedloom("analyze", finished, *QUICK, "--json").json)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_all_parts_are_computed_and_saved(analysis: dict[str, Any], finished: Path) -> None:
    place = finished / "analysis"
    assert [name for name in analysis if name in PARTS] == PARTS and analysis["cut_short"] == []
    assert json.loads((place / "analysis.json").read_text()) == {
        k: v for k, v in analysis.items() if k != "out"
    }
    assert analysis["out"] == str(place) and {p.name for p in place.iterdir()} == {
        "analysis.json",
        "analysis.npz",
        "landscape.png",
    }
    with np.load(place / "analysis.npz", allow_pickle=False) as arrays:
        assert arrays["eigenvectors"].shape == (5, analysis["parameters"])
        assert (
            arrays["diagonal"].shape == arrays["diagonal_error"].shape == (analysis["parameters"],)
        )
        assert arrays["landscape_loss"][10, 10] == pytest.approx(analysis["loss"], rel=1e-5)


def test_figures_are_consistent(analysis: dict[str, Any]) -> None:
    trace, eigen, diagonal = analysis["trace"], analysis["eigen"], analysis["diagonal"]
    assert eigen["values"] == sorted(eigen["values"], key=abs, reverse=True)
    assert all(r < 0.02 * abs(eigen["values"][0]) for r in eigen["residuals"])
    both = np.hypot(trace["hutchinson"]["standard_error"], trace["hutch++"]["standard_error"])
    assert abs(trace["hutchinson"]["value"] - trace["hutch++"]["value"]) < 5 * both
    assert sum(t["value"] for t in diagonal["per_tensor"].values()) == pytest.approx(
        trace["hutchinson"]["value"], rel=1e-5
    )
    share = 1 - 1 / len(analysis["pairs"]["clients"])
    gap = analysis["pairs"]["per_tensor"]["H_N"]
    assert gap["mean_over_matrix"] == pytest.approx(share * gap["mean_over_pairs"])
    assert gap["standard_error"] > 0


def test_the_loss_and_the_accuracy_are_those_of_the_run(
    analysis: dict[str, Any], finished: Path
) -> None:
    result = json.loads((finished / "result.json").read_text())["summary"]
    assert analysis["weights_sha256"] == result["weights_sha256"]
    assert analysis["drift"]["server"]["accuracy"] == pytest.approx(result["accuracy"])
    assert np.mean(analysis["drift"]["server"]["class_recall"]) == pytest.approx(
        result["accuracy"]
    )  # the test data have equally many samples of each class


def test_clients_are_replayed_as_in_the_run(analysis: dict[str, Any], finished: Path) -> None:
    """For a finished run the replayed round is the last one, with its clients."""
    last = json.loads((finished / "metrics.jsonl").read_text().splitlines()[-1])
    assert (
        analysis["pairs"]["clients"]
        == [c["client"] for c in analysis["drift"]["clients"]]
        == last["participants"]
    )
    for client in analysis["drift"]["clients"]:
        assert (
            client["update_norm"] > 0
            and 0 < client["cosine_to_mean"] <= 1
            and all(0 < v < 1 + 1e-6 for v in client["cka"].values())
        )


def test_the_same_seed_gives_the_same_figures_and_another_seed_does_not(
    analysis: dict[str, Any], finished: Path
) -> None:
    def without_clock(found: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in found.items() if k not in ("seconds", "options")}

    again = fedloom("analyze", finished, *QUICK, "--json").json
    other = fedloom("analyze", finished, *QUICK, "--seed", 1, "--json").json
    assert without_clock(again) == without_clock(analysis)
    assert other["trace"] != analysis["trace"] and other["loss"] != analysis["loss"]


def test_the_run_is_not_changed(finished: Path, desk: Path) -> None:
    folder = shutil.copytree(finished, desk / "copy")
    before = files(folder)
    fedloom("analyze", folder, *QUICK, "--only", "eigen,drift")
    after = files(folder)
    assert {n: b for n, b in after.items() if not n.startswith("analysis/")} == {
        n: b for n, b in before.items() if not n.startswith("analysis/")
    }
    assert "analysis/landscape.png" not in after  # the folder holds the last analysis only


def test_a_small_model_is_analysed_exactly(finished: Path) -> None:
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
    assert found["trace"]["hutchinson"]["standard_error"] == 0
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


def test_running_out_of_time_is_reported(finished: Path) -> None:
    said = fedloom(
        "analyze", finished, "--samples", 240, "--probes", 200, "--minutes", 0.0001, "--json"
    )
    assert (
        set(said.json["cut_short"]) >= {"eigen", "probes", "hutch++", "landscape"}
        and "out of time in eigen" in said.flat
    )
    assert said.json["eigen"]["values"] == [] and said.json["trace"]["hutchinson"]["probes"] >= 2


def test_an_unfinished_run_is_analysed_at_its_last_checkpoint(finished: Path, desk: Path) -> None:
    folder = shutil.copytree(finished, desk / "half")
    for path in [*folder.glob("checkpoint/*-3.*"), folder / "result.json"]:
        path.unlink()
    said = fedloom("analyze", folder, *QUICK, "--only", "eigen", "--json")
    assert (
        said.json["round"] == 2 and "unfinished; this is its model after round 2 of 3" in said.flat
    )


def test_the_previous_checkpoint_replaces_a_damaged_one(finished: Path, desk: Path) -> None:
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
        (("RUN", "--only", ","), "the analysis has no parts; choose from eigen"),
        (("RUN", "--clients", 99), "--clients 99 is more than the 8 clients"),
        (("EMPTY",), "has no checkpoint yet"),
        (("RUN", "--probes", 0), "--probes"),
        (("RUN", "--samples", -4), "--samples"),
    ],
)
def test_bad_arguments_are_rejected_with_a_message(
    words: tuple[object, ...], sentence: str, finished: Path, desk: Path
) -> None:
    empty = shutil.copytree(finished, desk / "empty")
    for path in (*(empty / "checkpoint").iterdir(), empty / "result.json"):
        path.unlink()
    (empty / "metrics.jsonl").write_bytes(b"")  # a run that has just begun
    places = {"RUN": finished, "EMPTY": empty}
    said = fedloom("analyze", *(places.get(str(w), w) for w in words), code=2)
    assert sentence in said.flat


LEAKY = {"samples": "fedmix(size=1)", "hidden states": "fedmix(size=1,at=layer1,every_round=true)"}


@pytest.fixture(scope="module", params=LEAKY.values(), ids=LEAKY)
def leaky(request: pytest.FixtureRequest, home: Path) -> tuple[str, Path]:
    folder = home / f"leaky-{request.param_index}"
    run(folder, "--method", request.param, "--model", "mlp(layers=1,width=16)", rounds=2)
    return request.param, folder


def test_an_average_of_one_sample_reveals_it(leaky: tuple[str, Path]) -> None:
    """Each member equals an average in the space in which it was sent; no other sample does."""
    method, folder = leaky
    found = fedloom("analyze", folder, "--leak", "--samples", 40, "--json").json
    leak, hidden = found["leak"], "every_round" in method
    assert (
        found["options"]["only"] == ["leak"]
        and leak["averages"] == 240
        and leak["block"] == ("layer1" if hidden else None)
    )
    tracing = leak["auc"]["tracing"]
    assert (
        leak["auc"]["nearest"]["value"] == 1
        and tracing["value"] > 0.5 + 4 * tracing["standard_error"]
    )
    assert (
        leak["psnr"]["members"]["largest"] == pytest.approx(100)
        and leak["psnr"]["others"]["largest"] < 60
    )
    assert (leak["ssim"]["members"]["mean"] is None) is hidden


def test_the_table_names_the_block_of_hidden_states(leaky: tuple[str, Path]) -> None:
    method, folder = leaky
    said = fedloom("analyze", folder, "--leak", "--samples", 40).out
    assert "membership, tracing" in said and (
        "of the outputs of 'layer1'" in " ".join(said.split())
    ) is ("every_round" in method)


def test_leak_adds_to_the_parts_of_only(leaky: tuple[str, Path]) -> None:
    found = fedloom(
        "analyze", leaky[1], "--only", "trace", "--leak", "--samples", 40, "--probes", 12, "--json"
    ).json
    assert "trace" in found and "leak" in found and "eigen" not in found


def test_averages_of_many_hidden_states_reveal_less(home: Path) -> None:
    run(home / "mixed", "--method", "fedmix(at=layer1,every_round=true)", rounds=2)
    found = fedloom("analyze", home / "mixed", "--leak", "--samples", 40, "--json").json["leak"]
    assert found["averages"] == 8 and 0.3 < found["auc"]["nearest"]["value"] < 0.7
    assert found["psnr"]["members"]["largest"] < 60


def test_a_run_without_averages_has_no_leakage(finished: Path) -> None:
    assert "exchanges no averages of samples" in fedloom("analyze", finished, "--leak", code=2).flat
