"""`fedloom cost`: the tables beside what is printed, one method on a model, and wrong input."""

import pytest

from cli.talk import fedloom
from fedloom.inspect import cost_tables as room

KEYS = {"method", "mflops", "params_m", "printed_mflops", "printed_params_m", "verdict"}
ONE = ("cost", "--model", "mlp(layers=1,width=4)", "--shape", "1x8x8", "--classes", 4)
WEIGHTS = 64 * 4 + 4 + 4 * 4 + 4
PRODUCTS = 64 * 4 + 4 * 4


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of two rows on a model that is counted in no time: the first matches in one number, the second in none."""
    case = room.Case("mlp(layers=1,width=4)", (1, 8, 8), 4, note="a small one")
    rows = (room.Row("Plain", "fedavg", "toy", "0.0003", "0.1", {"params_m": "counted in another way"}),
            room.Row("Spring", "fedprox", "toy", "0.0003", "0.0006"))  # fmt: skip
    monkeypatch.setattr(room, "table", lambda name: room.CostTable(name, {"toy": case}, rows))


def test_one_method_for_programs() -> None:
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


def test_one_method_for_people() -> None:
    said = fedloom(*ONE, "--no-measure", "--convention", "paper")
    assert (
        "stored parameters       280 " in said.out
        and "convention: paper" in said.out
        and "time a step" not in said.out
        and said.err == ""
    )
    assert "x FedAvg's" in fedloom(*ONE, "--batch", 4).out


def test_a_table_for_programs(short: None) -> None:
    plain, spring = fedloom("cost", "fedalign/table5", "--json").json
    assert set(plain) >= KEYS and (plain["printed_mflops"], plain["mflops"]) == (
        0.0003,
        PRODUCTS / 1e6,
    )
    assert plain["verdicts"] == {"mflops": room.SAME, "params_m": "differs: counted in another way"}
    assert plain["verdict"] == "params_m differs: counted in another way"
    assert spring["verdict"] == room.SAME and spring["params_m"] == 2 * WEIGHTS / 1e6


def test_a_table_for_people(short: None) -> None:
    said = fedloom("cost", "fedalign/table5")
    assert (
        "counting 2 of 2: Spring, toy" in said.err
        and "a small one" in said.out
        and "ok: matches to the printed digit" in said.out
    )
    assert "Plain, toy, params_m differs: counted in another way" in said.out


@pytest.mark.parametrize(
    ("printed", "ours", "error", "said"),
    [
        ("87.3", 87.254016, 0.0, room.SAME),
        ("87.3", 87.237632, 0.0, "differs: why"),
        ("0.61", 0.60546, 0.0, room.SAME),
        ("1.21", 1.2289, 0.0, "differs: why"),
        ("17.3", 17.4, 0.03, room.NEAR),
        ("17.3", 17.4, 0.02, "differs: why"),
    ],
)
def test_a_verdict_is_a_matter_of_digits(
    printed: str, ours: float, error: float, said: str
) -> None:
    assert room.verdict(printed, ours, error, "why") == said


def test_the_printed_tables() -> None:
    assert room.names() == ["fedalign/table5", "fedalign/table7"]
    five, seven = map(room.table, room.names())
    assert [(r.name, r.mflops, r.params_m) for r in five.rows][:3] == [
        ("FedAvg", "87.3", "0.61"), ("FedProx", "87.3", "1.21"), ("MOON", "262.2", "2.21")]  # fmt: skip
    assert (len(five.rows), len(seven.rows)) == (10, 16)
    for prepared in (five, seven):
        for row in prepared.rows:
            prepared.cases[row.case].scene(
                row.method, batch=2
            )  # raises if a name or an argument is wrong


def test_resnet18_in_the_unit_of_its_table() -> None:
    seven = room.table("fedalign/table7")
    row = next(r for r in seven.rows if (r.name, r.case) == ("FedAvg", "imagenet-200"))
    line = room.count(seven, row, "paper", draws=8)
    assert line.verdicts["mflops"] == room.SAME and f"{line.numbers['mflops']:.3f}" == "18.137"
    assert line.verdicts["params_m"].startswith("differs: printed for 100 classes")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["fedalign/table55"],
            ("no preset with cost columns 'fedalign/table55'", "did you mean 'fedalign/table5'?"),
        ),
        (
            ["fedalign/table5", "--method", "fedavg"],
            ("'fedalign/table5' says itself", "leave --method out"),
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
def test_wrong_input_is_told_in_a_sentence(words: list[str], said: tuple[str, ...]) -> None:
    told = fedloom("cost", *words, code=2).flat
    for part in said:
        assert part in told
