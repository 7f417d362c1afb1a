"""A share of every attack of `make check-trust`, and proof that the attacks would notice."""

from pathlib import Path

import pytest

from fedloom.experiment.prepare import PreparedRun
from fedloom.runs import durable_files, folder, journal, memory_database
from trust import disk_errors, kills, manifests, power, small_run
from trust.outcomes import FAILURES, FELL_BACK, IDENTICAL, REJECTED, TRACEBACK, WRONG
from trust.report import ATTACKS, Attack, available, failures, main, run

SHARES = {
    "kills": 0.03,
    "power": 0.012,
    "disk_errors": 0.025,
    "corruption": 0.08,
    "manifests": 0.06,
    "data_files.attack_stored": 0.05,
    "configs": 0.02,
    "data_files": 0.02,
    "wire": 0.05,
}


@pytest.mark.parametrize("attack", available(), ids=lambda attack: attack.name)
def test_nothing_is_silently_wrong_and_nothing_ends_in_a_traceback(attack: Attack) -> None:
    outcomes = run(attack, SHARES[attack.name])
    assert failures(attack, outcomes) == 0, outcomes
    assert sum(outcomes.values()) >= 10


def test_every_attack_has_a_share() -> None:
    assert SHARES.keys() == {attack.name for attack in ATTACKS}


def test_the_runs_under_attack_can_be_resumed_and_damage_leads_back() -> None:
    with small_run.workshop() as shop:
        assert small_run.resume(small_run.stopped(shop / "run", after=3)) == IDENTICAL
        run = small_run.stopped(shop / "again", after=3)
        (run / "checkpoint/round-3.safetensors").write_bytes(b"")
        assert small_run.resume(run) == FELL_BACK


def test_a_result_of_another_seed_is_wrong() -> None:
    with small_run.workshop() as shop:
        other = small_run.finished(shop / "other", seed=1)
        assert small_run.resume(other) == WRONG


# The attacks themselves: each finds what it is there for once a safeguard is taken away.


def test_a_kill_finds_a_run_that_does_not_cut_its_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal.Journal, "truncate", lambda self, length: None)
    outcomes = kills.attack(0.03, kills.SCENARIOS[:1])
    assert outcomes[WRONG] + outcomes[REJECTED] > 0


def test_a_power_loss_finds_names_that_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (durable_files, folder, memory_database):
        monkeypatch.setattr(module, "sync_folder", lambda folder: None)
    assert power.attack(0.04, scenarios=kills.SCENARIOS[1:2])[WRONG] > 0


def test_a_disk_error_finds_what_is_not_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, data: bytes) -> None:
        path.write_bytes(data)

    monkeypatch.setattr("fedloom.runs.checkpoint.write_durably", write)
    assert disk_errors.attack(0.1, kills.SCENARIOS[1:2])[TRACEBACK] > 0


def test_a_forged_state_finds_a_missing_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreparedRun, "state_problem", lambda self, state: None)
    outcomes = manifests.attack(count=40)
    assert sum(outcomes[kind] for kind in FAILURES) > 0


def test_the_report_has_a_row_for_each_attack(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corruption", "manifests", "--share", "0.005"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert "SILENTLY WRONG" in head and "TRACEBACK" in head
    assert [row.split()[0] for row in rows] == ["damaged", "resealed"]
