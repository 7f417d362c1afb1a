"""Gates on made-up run folders: met, not met, and not known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedloom.claims.gates import GateResult, gate_result, trial_result
from fedloom.core.errors import UserError
from support.made_up_runs import plan

PLATEAU = {"kind": "plateau", "of": "fedavg", "last": 0.4, "below": 1.0}
LOSS = {"kind": "train_loss", "of": "fedavg", "by_round": 3, "below": 0.1}
SCORE = {"kind": "score", "of": "fedavg", "above": 40.0}
GAIN = {"kind": "gain", "better": "mixup", "than": "fedavg", "at_least": 1.0}
RISING = [0.1, 0.2, 0.3, 0.4, 0.5]
FLAT = [0.1, 0.3, 0.4, 0.4, 0.405]


def result(folder: Path, accuracies: list[float], *gate: dict[str, Any], **more: Any) -> GateResult:
    return trial_result(plan(folder, {"fedavg": [accuracies]}, *gate, **more))


def test_a_plateau_is_the_gain_over_the_last_rounds(tmp_path: Path) -> None:
    met = result(tmp_path / "flat", FLAT, PLATEAU)
    assert met == GateResult(
        True, "fedavg gains +0.50 over the last 40% of the rounds, less than 1 needed"
    )
    rising = result(tmp_path / "rising", RISING, PLATEAU)
    assert rising.met is False and "+20.00" in rising.why
    falling = result(tmp_path / "falling", [0.1, 0.5, 0.5, 0.4, 0.3], PLATEAU)
    assert falling.met is True


def test_a_plateau_of_the_moving_average(tmp_path: Path) -> None:
    smooth = [RISING[0]]
    for accuracy in RISING[1:]:
        smooth.append(0.9 * smooth[-1] + 0.1 * accuracy)
    found = result(tmp_path, RISING, {**PLATEAU, "measure": "ema(of=1)"})
    assert f"{100 * (smooth[4] - smooth[2]):+.2f}" in found.why


def test_a_plateau_is_not_known_with_too_few_rounds(tmp_path: Path) -> None:
    found = result(tmp_path, [0.3], PLATEAU)
    assert found.met is None and "too few evaluations" in found.why


def test_the_training_loss_by_a_round(tmp_path: Path) -> None:
    assert result(tmp_path / "a", FLAT, LOSS, losses=[1, 0.5, 0.09, 0.05, 0.01]).met is True
    late = result(tmp_path / "b", FLAT, LOSS, losses=[1, 0.5, 0.2, 0.05, 0.01])
    assert late.met is False and "0.200 by round 3" in late.why
    short = result(tmp_path / "c", FLAT[:2], LOSS, losses=[1, 0.01])
    assert short.met is None and "fewer than 3 rounds" in short.why


def test_a_score_must_be_above_its_bound(tmp_path: Path) -> None:
    assert result(tmp_path / "a", FLAT, SCORE).met is True
    assert result(tmp_path / "b", FLAT, {**SCORE, "above": 40.5}).met is False
    recall = {**SCORE, "measure": "personal"}
    assert result(tmp_path / "c", FLAT, recall, recall=0.41).met is True
    assert result(tmp_path / "d", FLAT, recall, recall=0.39).met is False


def test_a_gain_is_over_shared_seeds(tmp_path: Path) -> None:
    rows = {"fedavg": [[0.40], [0.50], [0.10]], "mixup": [[0.41], [0.512]]}
    found = trial_result(plan(tmp_path / "a", rows, GAIN))
    assert found == GateResult(True, "mixup gains +1.10 over fedavg, at least 1 needed")
    assert trial_result(plan(tmp_path / "b", rows, {**GAIN, "at_least": 1.2})).met is False


def test_the_mean_over_seeds_counts(tmp_path: Path) -> None:
    found = trial_result(plan(tmp_path, {"fedavg": [[0.39], [0.42]]}, SCORE))
    assert found.met is True and "40.50" in found.why


def test_a_gate_is_not_known_without_finished_runs(tmp_path: Path) -> None:
    found = result(tmp_path, [], SCORE)
    assert found == GateResult(None, "score: no finished run of fedavg")


def test_all_conditions_must_hold(tmp_path: Path) -> None:
    assert result(tmp_path / "a", FLAT, PLATEAU, SCORE).met is True
    assert result(tmp_path / "b", RISING, PLATEAU, SCORE).met is False
    short = result(tmp_path / "c", [0.3], PLATEAU, SCORE)
    assert short.met is False  # not known and not met
    assert result(tmp_path / "d", [0.5], PLATEAU, SCORE).met is None
    assert result(tmp_path / "e", FLAT).met is True


def test_a_gate_is_about_the_settings_of_a_suite(tmp_path: Path) -> None:
    made = plan(tmp_path, {"fedavg": [FLAT]})
    assert gate_result(made) == GateResult(None, "no gate says whether that is a fair test")
    of_suite = replace(made, suite=replace(made.suite, id="mix-lenet"))
    assert gate_result(of_suite).met is True
    changed = gate_result(replace(of_suite, changes=("rounds=1", "train.epochs=1")))
    assert changed == GateResult(
        None, "these are not the settings of the suite, changed: rounds=1, train.epochs=1"
    )


def test_a_gate_that_makes_no_sense_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no kind of gate 'plato'; did you mean 'plateau'"):
        result(tmp_path, FLAT, {**PLATEAU, "kind": "plato"})
    with pytest.raises(UserError, match="row 'mixup', which it does not run"):
        result(tmp_path / "b", FLAT, GAIN)
