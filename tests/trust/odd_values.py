"""Values, names and specs that settings should not have, and some that they may have."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any

from fedloom.core.sampler import SAMPLERS
from fedloom.data.augment import AUGMENTS
from fedloom.data.partition import PARTITIONS
from fedloom.methods.registry import names as method_names
from fedloom.models.registry import MODELS
from fedloom.settings.config import DEFAULTS

NAMES = {
    "method": [name for name in method_names()],
    "model": list(MODELS),
    "sample": list(SAMPLERS),
    "partition": list(PARTITIONS),
    "augment": list(AUGMENTS),
}

NUMBERS = (
    "0", "1", "2", "5", "-1", "3.0", "0.5", "-0.0", "1e-320", "1e308", "7e18",
    "99999999999999999999", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "1000000000", "1000000001", "4294967296", "0.1", "1e3", "0x" + "f" * 6000, "9" * 5000,
    "0b1", "1_000",
)  # fmt: skip
TOML_ONLY = (
    "true", "false", "nan", "inf", "-inf", "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z",
    "[]", "{}", "[1, 'a', true]", "[[1], [2]]", "{name = 1}", "{name = 'fedavg', mu = 1}",
    "[0.5]", "[true]", "['0.5']", "{a = {b = {c = 1}}}",
)  # fmt: skip
TEXTS = (
    '"3"', '"0.5"', '"true"', '"nan"', '""', '" "', '"\\u0000"', '"a\\u0000b.py:f"', '"fedavg"',
    '"cosine"', '"auto"', '"cpu"', '"cuda:99999999999999999999"', '"cuda:-1"', '"float64"', '"all"',
    '"/etc/passwd"', '"' + "x" * 5000 + '"', '"' + "x" * 300 + '.py:f"', '"\\U0001F600"', '"é"',
    '"absent.py:f"', '"absent_module_x:f"', '":"', '"a:"', '":f"', '"python:gone"', '"#1"',
    '"None"',
)  # fmt: skip
PYTHON_ONLY = (
    "True", "None", "none", "-" * 5000, "(" * 500, "[" * 5000, "b'x'", "1j", "{1, 2}", "...",
    "1e999",
    "{'name': 'fedavg'}", "{1: 2}", "(1, 2)", "[None]", "'a' 'b'", "nan", "inf", "fast", "\udcff",
    "a\0b", "x" * 100_000, "[1, 2", "lambda: 0", "__import__('os')", "1_0", "0o17", "'\\ud800'",
)  # fmt: skip
PIECES = (
    b"\0", b"\xff\xfe", b"\n[", b"]\n", b"=", b'"', b"'''", b"[[a]]\n", b"a.b.c.d = 1\n", b"#",
    b"\r",
    b"\xed\xa0\x80", b"\n[train]\nlr = 1\n", b"{", b"}", b",", b"9" * 30, b"-", b"e", b".",
    b"[" * 3000,
    b"\nx = " + b"{a=" * 3000, b"1" * 5000, "é".encode(), b"\xef\xbb\xbf",
)  # fmt: skip


def _dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in table.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")


SETTINGS = tuple(_dotted(DEFAULTS))


def usual(path: str, draw: random.Random) -> Any:
    """A value of the kind that the setting takes, often a valid one."""
    default: Any = DEFAULTS
    for step in path.split("."):
        default = default[step]
    if isinstance(default, bool):
        return draw.random() < 0.5
    if isinstance(default, float) or default is None:
        return draw.choice((0.25, 0.9, 1, 2.0, 7, 1e-3))
    return draw.choice((0, 1, 3, 4.0, 12)) if isinstance(default, int) else copy.deepcopy(default)


def in_toml(draw: random.Random) -> str:
    """A value as TOML writes it."""
    return draw.choice(draw.choice((NUMBERS, NUMBERS, TOML_ONLY, TEXTS)))


def in_python(draw: random.Random) -> str:
    """A value as it stands after --set."""
    return draw.choice(draw.choice((NUMBERS, PYTHON_ONLY, TEXTS)))


def name(old: str, draw: random.Random) -> str:
    """A name like this one: with a typo, repeated, empty, or odd."""
    at = draw.randrange(len(old) + 1)
    return draw.choice(
        (
            old[:at] + draw.choice("abexz.-_ é#") + old[at:],
            old[:at] + old[at + 1 :],
            old.upper(),
            old + "." + old,
            "",
            "x" * draw.choice((50, 5000)),
            ".".join("a" * draw.choice((3, 30, 3000))),
            "name",
            "#1",
            "__class__",
            "model_config",
        )
    )


def spec(kind: str, draw: random.Random) -> str:
    """A name with arguments: valid, nearly valid, or not at all."""
    arguments = [
        f"{draw.choice(ARGUMENTS)}={draw.choice(draw.choice((NUMBERS, PYTHON_ONLY, WORDS)))}"
        for _ in range(draw.choice((0, 1, 1, 2, 3)))
    ]
    if draw.random() < 0.1:
        arguments.append(draw.choice(NUMBERS + WORDS))
    text = draw.choice(NAMES.get(kind, ["fedavg"]))
    text += f"({', '.join(arguments)})" if arguments else ""
    if kind == "method" and draw.random() < 0.4:
        text += "+" + draw.choice(NAMES["method"])
    if draw.random() < 0.2:
        at = draw.randrange(len(text) + 1)
        text = (
            text[:at] + draw.choice(("(", ")", "+", ",", "=", " ", "é", "'", ":", "x")) + text[at:]
        )
    return draw.choice(ODD_SPECS) if draw.random() < 0.05 else text


WORDS = ("abc", "true", "group", "batch", "", "'quoted'")
ARGUMENTS = (
    "mu", "lam", "beta", "alpha", "per_round", "classes", "width", "layers", "norm", "padding",
    "blocks", "steps", "lr", "name", "x", "mu", "legacy_seed", "min_size", "share", "shape", "#1",
    "",
)  # fmt: skip
ODD_SPECS = (
    "", " ", "+", "()", "(", ")", "a(b", "+" * 4000, " " * 4000 + "(", "a" + " " * 4000 + "(",
    "fedavg" + "+fedavg" * 500, "(((((", "fedprox(mu)", "fedprox(0.1)", "fedprox(mu=1, mu=2)",
    "fedprox(mu=1)(mu=2)", "fedprox[mu=1]", "fedprox(mu=(1))", "\udcff", "a\0", "x" * 5000,
)  # fmt: skip
