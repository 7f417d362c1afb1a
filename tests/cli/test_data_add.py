"""`fedloom data add`: what it understood goes to stdout, warnings to stderr, both into the JSON."""

from pathlib import Path

from cli.talk import fedloom


def write_sites(desk: Path) -> None:
    for name, count in (("north", 40), ("south", 4)):
        rows = [f"{40 + i % 9};{i % 5},5;{('no', 'yes')[i % 3 > 1]}" for i in range(count)]
        (desk / "sites").mkdir(exist_ok=True)
        (desk / "sites" / f"{name}.csv").write_text("\n".join(["age;[/dose];ill", *rows]))


ADD = ("data", "add", "sites", "--from", "sites", "--option", "decimal=,", "--replace")


def test_what_was_understood(desk: Path) -> None:
    write_sites(desk)
    said = fedloom(*ADD)
    shown = dict(line.split(maxsplit=1) for line in said.out.splitlines() if line[:1].isalpha())
    assert shown["rows"].startswith("44: 35 to train, 9 to test")
    assert shown["clients"].strip() == "2, 4 to 40 rows each: north, south"
    assert shown["classes"].strip() == "2: no (30), yes (14)"
    assert shown["format"].strip() == "table" and shown["source"].strip().endswith("sites")
    assert "[/dose]" in said.out, "a name is no markup"
    assert said.flat.startswith("warning: few samples at 1 of 2 clients (fewer than 10")
    assert "warning" not in said.out


def test_the_same_as_json(desk: Path) -> None:
    write_sites(desk)
    said = fedloom(*ADD, "--json")
    result = said.json
    assert result["understood"]["rows"]["total"] == 44
    assert result["understood"]["classes"] == {"no": 30, "yes": 14}
    assert [c["name"] for c in result["understood"]["features"]["columns"]] == ["age", "[/dose]"]
    (warning,) = result["warnings"]
    assert "'south' (4)" in warning and result["problems"] == []
    assert "warning: few samples" in said.flat
    assert fedloom("data", "check", "sites", "--json").json["warnings"] == [warning]


def test_the_hint_can_be_typed(desk: Path) -> None:
    write_sites(desk)
    error = fedloom("data", "add", "sites", "--from", "sites", "--replace", code=2).flat
    assert "column '[/dose]': found numbers written as '0,5', '1,5', '2,5'" in error
    assert "set decimal=','" in error
    fedloom("data", "add", "sites", "--from", "sites", "--option", "decimal=','", "--replace")


def test_numbers_as_missing_values(desk: Path) -> None:
    rows = [f"{-9 if i == 3 else -99 if i == 5 else i},{i % 2}" for i in range(30)]
    (desk / "t.csv").write_text("\n".join(["x,y", *rows]))
    add = ("data", "add", "t", "--from", "t.csv", "--option", "na=-9,-99", "--json")
    assert fedloom(*add).json["understood"]["missing"]["columns"] == {"x": 2}
