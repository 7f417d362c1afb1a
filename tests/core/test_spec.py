"""Specs: text to data, and arguments checked against a signature, all problems at once."""

import math
from functools import partial
from typing import Annotated, Any, Literal

import pytest

from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.spec import Param, argument_problems, arguments, call, parameters, parse


def sew(
    stitch: Annotated[float, Param("length of a stitch", above=0, high=2)],
    colour: Annotated[Literal["red", "blue"], Param("of the thread")] = "red",
    passes: Annotated[int, Param("how often", low=1)] = 1,
    tension: Annotated[float | Literal["auto"], Param("of the thread", low=0, below=1)] = "auto",
    knots: Annotated[int | None, Param("none: as many as it takes")] = None,
    backwards: Annotated[bool, Param("from the end")] = False,
    pattern: Annotated[list[int], Param("rows")] = [],  # noqa: B006
    anything: Any = None,
) -> str:
    return f"{stitch:g} {colour} {passes}"


FINE: list[dict[str, Any]] = [
    {"stitch": 2},
    {"stitch": 1e-9, "colour": "blue"},
    {"stitch": 1.0, "tension": 0, "knots": 3},
    {"stitch": 1.0, "tension": "auto", "knots": None, "backwards": True},
    {"stitch": 1.0, "pattern": [1, 2], "anything": True},
]
WRONG: dict[str, tuple[Any, str]] = {
    "stitch": (0, "stitch=0 must be above 0 (length of a stitch)"),
    "stitch too long": (2.5, "stitch=2.5 must be at most 2 (length of a stitch)"),
    "stitch is not a number": (math.nan, "stitch=nan must be finite (length of a stitch)"),
    "stitch without end": (math.inf, "stitch=inf must be finite (length of a stitch)"),
    "stitch in words": ("long", "stitch='long' must be a number (length of a stitch)"),
    "stitch as a switch": (True, "stitch=True must be a number (length of a stitch)"),
    "colour": ("green", "colour='green' must be 'red' or 'blue' (of the thread)"),
    "colour as a number": (1, "colour=1 must be 'red' or 'blue' (of the thread)"),
    "passes": (0, "passes=0 must be at least 1 (how often)"),
    "passes in half": (1.5, "passes=1.5 must be a whole number (how often)"),
    "passes as a switch": (True, "passes=True must be a whole number (how often)"),
    "tension": (1, "tension=1 must be below 1 (of the thread)"),
    "tension in words": ("tight", "tension='tight' must be 'auto' or a number (of the thread)"),
    "knots": ("many", "knots='many' must be a whole number or none (none: as many as it takes)"),
    "backwards": (1, "backwards=1 must be true or false (from the end)"),
    "pattern": (3, "pattern=3 must be list (rows)"),
}


@pytest.mark.parametrize("args", FINE)
def test_valid_arguments_are_accepted(args: dict[str, Any]) -> None:
    assert argument_problems(sew, args) == []


@pytest.mark.parametrize("case", WRONG)
def test_an_invalid_value_is_named(case: str) -> None:
    value, message = WRONG[case]
    assert argument_problems(sew, {"stitch": 1.0, case.split()[0]: value}) == [message]


def unannotated(weight, mu=0.1, steps=5, fast=True, kind="a", sizes=(1, 2), other=None):  # type: ignore[no-untyped-def]
    ...


class Annotated_(list):  # type: ignore[type-arg]
    """A class; its parameters are those of __init__."""

    def __init__(self, width: int, act: str) -> None: ...


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"mu": 3}, None),
        ({"mu": "abc"}, "mu='abc' must be a number"),
        ({"mu": True}, "mu=True must be a number"),
        ({"steps": 0.5}, None),  # a default of 5 does not say that 0.5 is wrong
        ({"steps": "ten"}, "steps='ten' must be a number"),
        ({"steps": 10**30}, f"steps={10**30} must be between {-(2**63)} and {2**63}"),
        ({"fast": 1}, "fast=1 must be true or false"),
        ({"fast": False}, None),
        ({"kind": 3}, "kind=3 must be text"),
        ({"kind": "b"}, None),
        ({"sizes": [3]}, None),
        ({"sizes": 3}, "sizes=3 must be list or tuple"),
        ({"other": 0.5}, None),
        (
            {"other": "abc"},
            "other='abc' is text, and the function does not say that other is; "
            "write other: str in its signature, or give a number",
        ),
        ({"weight": True}, None),
    ],
)
def test_a_parameter_without_annotation_takes_what_its_default_is(
    value: dict[str, Any], problem: str | None
) -> None:
    found = argument_problems(unannotated, {"weight": 1, **value})
    assert found == ([] if problem is None else [problem])


def test_none_is_rejected_where_it_is_not_the_default() -> None:
    """A settings file cannot say none, so a resumed run would take the default instead."""

    def cut(at: str | None = "fc", other: str | None = None) -> None: ...

    assert argument_problems(cut, {"other": None}) == []
    assert argument_problems(cut, {"at": None}) == [
        "at=none cannot be stored in a settings file; give another value"
    ]


def test_text_for_a_parameter_that_says_nothing_is_rejected() -> None:
    (problem,) = argument_problems(unannotated, {"weight": "abc"})
    assert "weight='abc' is text" in problem and "write weight: str" in problem


def test_the_annotations_of_a_class_are_those_of_its_init() -> None:
    assert argument_problems(Annotated_, {"width": 3, "act": "relu"}) == []
    assert argument_problems(Annotated_, {"width": "3", "act": "relu"}) == [
        "width='3' must be a whole number"
    ]
    assert argument_problems(partial(sew, stitch=1.0), {"colour": "red"}) == []


def test_annotations_that_cannot_be_read() -> None:
    def odd(mu: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UserError, match=r"the parameters of 'odd' cannot be read .*Missing"):
        argument_problems(odd, {"mu": 1})


def test_an_argument_without_a_name_is_answered_with_what_to_write() -> None:
    (spec,) = parse("sew(0.1)")
    assert argument_problems(sew, spec.args) == ["argument 0.1 has no name; write stitch=0.1"]
    assert argument_problems(sew, arguments("0.1, blue")) == [
        "argument 0.1 has no name; write stitch=0.1",
        "argument blue has no name; write colour=blue",
    ]
    assert argument_problems(sew, arguments("stitch=1, passes")) == [
        "argument 'passes' has no value; write passes=VALUE"
    ]
    assert argument_problems(lambda: None, arguments("0.1")) == [
        "argument 0.1 has no name; write NAME=0.1"
    ]


def test_an_unknown_parameter() -> None:
    (near,) = argument_problems(sew, {"stitch": 1.0, "color": "red"})
    assert near.startswith(
        "no parameter 'color'; did you mean 'colour'? (choices: stitch, colour, "
    )
    (far,) = argument_problems(sew, {"stitch": 1.0, "zzz": 1})
    assert far.startswith("no parameter 'zzz' (choices: stitch, ")
    assert argument_problems(lambda: None, {"a": 1}) == ["no parameter 'a' (choices: none)"]


def test_a_missing_parameter() -> None:
    assert argument_problems(sew, {}) == ["parameter 'stitch' is missing (length of a stitch)"]
    assert argument_problems(sew, {}, skip=frozenset({"stitch"})) == []


def test_a_user_cannot_set_what_the_caller_fills_in() -> None:
    assert call("seam", "sew", sew, {"colour": "blue"}, stitch=1.5) == "1.5 blue 1"
    with pytest.raises(UserError, match="seam 'sew': no parameter 'stitch'"):
        call("seam", "sew", sew, {"stitch": 1.0}, stitch=1.5)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(UserError) as error:
        call("seam", "sew", sew, {"stitch": -1, "passes": 0, "colour": "green"})
    assert str(error.value).splitlines() == [
        "seam 'sew': 3 problems",
        "  - stitch=-1 must be above 0 (length of a stitch)",
        "  - passes=0 must be at least 1 (how often)",
        "  - colour='green' must be 'red' or 'blue' (of the thread)",
    ]


def test_a_parameter_describes_itself() -> None:
    facts = {name: p.describe() for name, p in parameters(sew).items()}
    assert facts["stitch"] == {
        "name": "stitch",
        "type": "float",
        "meaning": "length of a stitch",
        "above": 0,
        "high": 2,
    }
    assert facts["colour"]["choices"] == ["red", "blue"]
    assert facts["knots"] == {
        "name": "knots",
        "type": "int | null",
        "meaning": "none: as many as it takes",
        "default": None,
    }


def test_unknown_name_suggests_the_closest() -> None:
    assert (
        str(unknown_name("colour", "gren", ["green", "red"]))
        == "no colour 'gren'; did you mean 'green'? (choices: green, red)"
    )
    assert (
        str(unknown_name("colour", "x", ["red"], see="the box"))
        == "no colour 'x' (choices: red; see: the box)"
    )
    many = str(unknown_name("number", "x", map(str, range(100, 120))))
    assert many.endswith("110, 111, ...)")


def test_raise_all_without_problems_does_nothing() -> None:
    raise_all([], "anything")
    with pytest.raises(UserError, match=r"^it: one$"):
        raise_all(["one"], "it")
    with pytest.raises(UserError, match=r"^one$"):
        raise_all(["one"], "")
