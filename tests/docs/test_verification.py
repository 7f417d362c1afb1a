"""The column "verified by" says what the tests check."""

from pathlib import Path

from docparts.catalogue import method_table
from docparts.verification import verification

from fedloom.methods import registry
from support.method_cases import METHOD_TESTS, all_cases

SOURCE = """
from support.golden import golden
NUMBERS = golden("file")

class Case:
    name: str
    make: object
    oracle: object
    twin: object = None

def helper():
    return by_helper()

CASES = [
    Case("plain", alone, oracle),
    Case("twin", lambda: doubled(0.5), oracle, Twin(doubled(0.0))),
    Case("by keyword", twin=Twin(keyed(0)), oracle=oracle, make=keyed),
    Case("join", lambda: join([joined(), alone()]), oracle, Twin(joined())),
    Case("none", without_oracle, None),
    Case("helper", helper, oracle),
]

def compare(method):
    return method, NUMBERS

def test_numbers():
    compare(with_numbers())

@parametrize("make", [decorated])
def test_decorated(make):
    assert make() == NUMBERS

def test_without_numbers():
    only_named()

def not_a_test():
    compare(in_no_test())
"""
EXPECTED = {
    "alone": ["oracle"],
    "doubled": ["oracle", "degenerate"],
    "keyed": ["oracle", "degenerate"],
    "joined": [],
    "without-oracle": [],
    "by-helper": ["oracle"],
    "with-numbers": ["golden"],
    "decorated": ["golden"],
    "only-named": [],
    "in-no-test": [],
}


def test_what_counts_as_verification(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SOURCE)
    assert verification(tmp_path, EXPECTED) == EXPECTED


def test_the_syntax_agrees_with_the_rows_that_python_builds() -> None:
    seen = [(case.make().name, case.twin) for case in all_cases()]
    found = verification(METHOD_TESTS, registry.names())
    assert {m for m, kinds in found.items() if "oracle" in kinds} == {
        name for name, _ in seen if "+" not in name
    }
    assert {m for m, kinds in found.items() if "degenerate" in kinds} == {
        n for n, twin in seen if twin and "+" not in n
    }


def test_a_method_without_a_row_is_unverified(tmp_path: Path) -> None:
    (tmp_path / "tests" / "methods").mkdir(parents=True)
    lines = method_table(tmp_path).splitlines()[2:]
    assert len(lines) == len(registry.names())
    assert all(line.endswith("| unverified |") for line in lines)
