"""`fedloom cost`: a paper's tables with the printed numbers, one method on a model, bad input."""

from pathlib import Path

import pytest

from cli.talk import fedloom
from fedloom.inspect import cost_tables

KEYS = {"method", "mflops", "params_m", "printed_mflops", "printed_params_m", "verdict"}
ONE = ("cost", "--model", "mlp(layers=1,width=4)", "--shape", "1x8x8", "--classes", 4)
WEIGHTS = 64 * 4 + 4 + 4 * 4 + 4
PRODUCTS = 64 * 4 + 4 * 4


@pytest.fixture
def tiny_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table has two rows on a tiny model: one number of the first row differs as expected."""
    case = cost_tables.Case("mlp(layers=1,width=4)", (1, 8, 8), 4, note="a small one")
    why = {"params_m": "counted in another way"}
    rows = (
        cost_tables.Row("Plain", "fedavg", "toy", "0.0003", "0.1", why),
        cost_tables.Row("Proximal", "fedprox", "toy", "0.0003", "0.0006"),
    )
    monkeypatch.setattr(
        cost_tables, "table", lambda name: cost_tables.CostTable(name, {"toy": case}, rows)
    )


def test_one_method_as_json() -> None:
    (row,) = fedloom(*ONE, "--method", "fedprox", "--batch", 4, "--json").json
    assert set(row) >= KEYS and row["verdict"] is None and row["convention"] == "torch"
    assert (row["macs"], row["mflops"], row["stored_parameters"]) == (
        PRODUCTS,
        PRODUCTS / 1e6,
        2 * WEIGHTS,
    )
    assert row["training_macs"] == PRODUCTS + 64 * 4 + 2 * 4 * 4
    assert row["bytes_up"] == row["bytes_down"] == 4 * WEIGHTS
    assert (
        row["seconds"] > 0 and row["seconds_to_fedavg"] > 0 and row["peak_bytes"] > 3 * 4 * WEIGHTS
    )


def test_the_optimiser_counts() -> None:
    """SAM takes two gradients per step; Adam keeps two numbers for each weight."""
    (plain,), (sam,), (adam,) = (
        fedloom(*ONE, "--batch", 4, "--json", *words).json
        for words in ((), ("--sam", 0.1), ("--optimiser", "adam"))
    )
    assert sam["training_macs"] == 2 * plain["training_macs"] and sam["macs"] == 2 * plain["macs"]
    assert adam["training_macs"] == plain["training_macs"]
    assert adam["peak_bytes"] >= plain["peak_bytes"] + 2 * 4 * WEIGHTS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--optimiser", "lamb"), "train.optimiser='lamb' should be"),
        (("--sam", -1), "train.sam"),
        (("--method", "scaffold", "--optimiser", "adam"), "set train.optimiser=sgd"),
        (("--method", "pfedme", "--sam", 0.1), "would not use train.sam=0.1"),
    ],
)
def test_optimisers_that_cannot_be_used(words: tuple[object, ...], message: str) -> None:
    failed = fedloom("cost", *words, code=2)
    assert message in failed.err


def test_one_method_as_text() -> None:
    shown = fedloom(*ONE, "--no-measure", "--convention", "paper")
    assert "stored parameters         280 " in shown.out and "convention: paper" in shown.out
    assert "time per step" not in shown.out and shown.err == ""
    assert "x FedAvg's" in fedloom(*ONE, "--batch", 4).out


def test_a_table_as_json(tiny_table: None) -> None:
    plain, proximal = fedloom("cost", "fedalign/table5", "--json").json
    assert set(plain) >= KEYS and (plain["printed_mflops"], plain["mflops"]) == (
        0.0003,
        PRODUCTS / 1e6,
    )
    assert plain["verdicts"] == {
        "mflops": cost_tables.MATCHES,
        "params_m": "differs: counted in another way",
    }
    assert plain["verdict"] == "params_m differs: counted in another way"
    assert proximal["verdict"] == cost_tables.MATCHES and proximal["params_m"] == 2 * WEIGHTS / 1e6


def test_a_table_as_text(tiny_table: None) -> None:
    shown = fedloom("cost", "fedalign/table5")
    assert (
        "counting 2 of 2: Proximal, toy" in shown.err
        and "a small one" in shown.out
        and "ok: matches to the printed digit" in shown.out
    )
    assert "Plain, toy, params_m differs: counted in another way" in shown.out


@pytest.mark.parametrize(
    ("printed", "ours", "error", "expected"),
    [
        ("87.3", 87.254016, 0.0, cost_tables.MATCHES),
        ("87.3", 87.237632, 0.0, "differs: why"),
        ("0.61", 0.60546, 0.0, cost_tables.MATCHES),
        ("1.21", 1.2289, 0.0, "differs: why"),
        ("17.3", 17.4, 0.03, cost_tables.UNDECIDED),
        ("17.3", 17.4, 0.02, "differs: why"),
    ],
)
def test_a_verdict_compares_the_printed_digits(
    printed: str, ours: float, error: float, expected: str
) -> None:
    assert cost_tables.verdict(printed, ours, error, "why") == expected


def test_the_printed_tables() -> None:
    assert cost_tables.names() == ["fedalign/table5", "fedalign/table7"]
    five, seven = map(cost_tables.table, cost_tables.names())
    assert [(r.name, r.mflops, r.params_m) for r in five.rows][:3] == [
        ("FedAvg", "87.3", "0.61"),
        ("FedProx", "87.3", "1.21"),
        ("MOON", "262.2", "2.21"),
    ]
    assert (len(five.rows), len(seven.rows)) == (10, 16)
    for table in (five, seven):
        for row in table.rows:
            # Raises if a name or an argument is wrong.
            table.cases[row.case].scene(row.method, batch=2)


def test_resnet18_in_the_unit_of_its_table() -> None:
    seven = cost_tables.table("fedalign/table7")
    row = next(r for r in seven.rows if (r.name, r.case) == ("FedAvg", "imagenet-200"))
    line = cost_tables.count(seven, row, "paper", draws=8)
    assert (
        line.verdicts["mflops"] == cost_tables.MATCHES
        and f"{line.numbers['mflops']:.3f}" == "18.137"
    )
    assert line.verdicts["params_m"].startswith("differs: printed for 100 classes")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["fedalign/table55"],
            ("no preset with cost columns 'fedalign/table55'", "did you mean 'fedalign/table5'?"),
        ),
        (
            ["fedalign/table5", "--method", "fedavg"],
            ("'fedalign/table5' already says", "leave --method out"),
        ),
        (["--method", "fedporx"], ("no method 'fedporx'", "did you mean 'fedprox'?")),
        (["--model", "resnet57"], ("no model 'resnet57'", "did you mean 'resnet56'?")),
        (["--model", "mlp+cnn"], ("--model 'mlp+cnn' is not one model", "write a name")),
        (["--shape", "3x"], ("--shape '3x'", "write it as 3x32x32")),
        (["--shape", "80"], ("takes images", "(80,)")),
        (["--classes", "1"], ("--classes 1 must be at least 2",)),
        (["--convention", "papers"], ("no convention 'papers'", "did you mean 'paper'?")),
        (["--batch", "1"], ("--batch", "x>=2")),
    ],
    ids=" ".join,
)
def test_bad_input_is_explained(arguments: list[str], expected: tuple[str, ...]) -> None:
    message = fedloom("cost", *arguments, code=2).flat
    for part in expected:
        assert part in message


def test_a_table_at_the_papers_scale() -> None:
    shown = fedloom("cost", "fedafa/figure3", "--paper-scale", "--tflops", 2)
    assert (
        "hours: of the 3 seeds of the commands, an estimate: 2.00 TFLOP/s (--tflops)" in shown.out
    )
    assert "fedloom reproduce fedafa/figure3 --scale paper --seeds 3 --device cuda" in shown.out
    (row,) = fedloom("cost", "fedafa/figure3", "--paper-scale", "--gpu", "v100", "--json").json
    assert row["table"] == "fedafa/figure3" and (row["cells"], row["runs"]) == (9, 1)
    assert row["hours"] == pytest.approx(3 * 2 * row["macs"] / (15.7e12 / 4) / 3600, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--gpu", "t4"), "--gpu t4 is for --paper-scale"),
        (("--paper-scale", "--method", "fedavg"), "leave --method out"),
        (("--paper-scale", "--gpu", "t4", "--tflops", 3), "exclude each other"),
        (("--paper-scale", "--gpu", "t5"), "no GPU class 't5'"),
        (("nowhere", "--paper-scale"), "no table or paper 'nowhere'"),
    ],
)
def test_wrong_flags_of_the_papers_scale(words: tuple, sentence: str) -> None:
    refused = fedloom("cost", *words, code=2).flat
    assert sentence in refused


USERS = """
from torch import nn


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.position = nn.Conv2d(1, 5, 4, 4), nn.Embedding(4, 5)
        self.fc = nn.Linear(5, 4)

    def forward(self, x):
        return {"logits": self.fc((self.patch(x).flatten(2) + self.position.weight.T).mean(2))}
"""


def test_a_users_model_of_images_that_embeds_positions(tmp_path: Path) -> None:
    (tmp_path / "users.py").write_text(USERS)
    own = ("cost", "--model", f"{tmp_path}/users.py:Patches", "--classes", 4, "--json")
    (row,) = fedloom(*own, "--shape", "1x8x8", "--batch", 4).json
    assert row["macs"] == 4 * 5 * 16 + 5 * 4
    error = fedloom(*own, "--shape", "8x8", code=2).flat
    assert "users.py:Patches' does not accept a sample of numbers of shape (8, 8): " in error
    assert "change --shape or the model" in error
