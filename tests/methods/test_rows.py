"""Every method has a row in a table of CASES."""

from fedloom.methods import registry
from support.method_cases import all_cases


def test_every_method_has_a_row() -> None:
    made = {case.make().name for case in all_cases()}
    assert {name for name in made if "+" not in name} == set(registry.names())
