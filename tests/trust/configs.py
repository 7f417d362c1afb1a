"""Mutated settings: whatever stands in a config file or after --set, there is an answer in words.

`attack` starts from settings that are valid, damages them as TOML text, as values and as names, and
takes the way of `fedloom check` until every name is checked; some cases take the command itself.
Each case ends as one of

    accepted         and the loaded settings say what the text says
    rejected         with a UserError
    traceback        any other exception, or another exit code than 0 and 2
    silently wrong   accepted, but the settings are not those of the text

Run it alone with: python -m trust.configs 10000 0
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli import talk
from fedloom.cli.options import lay_over
from fedloom.core.errors import UserError
from fedloom.experiment.prepare import check_names
from fedloom.settings import toml
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.presets import names as preset_names
from fedloom.settings.presets import preset
from trust import odd_values

COMMAND_SHARE = 0.02  # of the cases, which also go through `fedloom check`
SPEC_PATHS = (("method",), ("model",), ("sample",), ("data", "partition"), ("data", "augment"))

Table = dict[str, Any]
Path_ = tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """The bytes of a config file, and the values of --set."""

    content: bytes
    sets: tuple[str, ...]


def attack(count: int, seed: int) -> Counter[str]:
    """How `count` mutated settings ended; what went wrong is written to stderr."""
    outcomes: Counter[str] = Counter()
    draw = random.Random(seed)
    with _home() as folder:
        starts = list(_starts())
        for number in range(count):
            case = mutated(draw.choice(starts), draw)
            kind, detail = outcome(case, folder / "case.toml", draw.random() < COMMAND_SHARE)
            outcomes[kind] += 1
            if kind in ("traceback", "silently wrong"):
                print(f"case {number}: {kind}: {detail}\n{case}"[:3000], file=sys.stderr)
    return outcomes


@contextmanager
def _home() -> Iterator[Path]:
    """A folder of its own with the data set `tiny`, which small settings name."""
    before = os.environ.get("FEDLOOM_HOME")
    with tempfile.TemporaryDirectory(prefix="fedloom-configs-") as name:
        folder = Path(name)
        os.environ["FEDLOOM_HOME"] = str(folder / "home")
        try:
            talk.fedloom("data", "add", "tiny", "--from", talk.write_tiny(folder / "tiny.npz"))
            yield folder
        finally:
            if before is None:
                del os.environ["FEDLOOM_HOME"]
            else:
                os.environ["FEDLOOM_HOME"] = before


def _starts() -> Iterator[Table]:
    """Valid settings: small ones, the defaults, and the presets that are single runs."""
    small = {
        "rounds": 2,
        "method": "fedprox(mu=0.1)+fedavgm",
        "model": "mlp(layers=1, width=4)",
        "data": {"name": "tiny", "clients": 8, "augment": ["flip", "pad-crop(padding=2)"]},
        "sample": {"name": "uniform", "per_round": 3},
        "train": {"lr": 0.1, "batch": 10, "schedule": {"kind": "cosine"}},
    }
    yield small
    yield {**small, "method": {"name": "fedprox", "fedprox": {"mu": 0.3}}, "model": "lenet5"}
    yield {**dict(DEFAULTS), "data": {**DEFAULTS["data"], "name": "tiny"}}
    for name in preset_names():
        found = preset(name)
        if found.table is None:
            yield found.settings


# ------------------------------------------------------------------ mutations


def mutated(start: Table, draw: random.Random) -> Case:
    """The settings with one to three changes of structure, or of bytes, or with --set."""
    table = json.loads(json.dumps(start))
    raw: list[str] = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        draw.choice(STRUCTURAL)(table, raw, draw)
    text = toml.dumps(table)
    for number, fragment in enumerate(raw):
        text = text.replace(f'"{_mark(number)}"', fragment)
    content = text.encode(errors="surrogatepass")
    if draw.random() < 0.3:
        content = _damaged(content, draw)
    sets = [_assignment(start, draw) for _ in range(draw.choice((0, 0, 0, 1, 2)))]
    return Case(content, tuple(sets))


def _mark(number: int) -> str:
    return f"fragment {number} of TOML"


def _placed(raw: list[str], fragment: str) -> str:
    """A mark for a piece of TOML, which is put in its place when the table is written."""
    raw.append(fragment)
    return _mark(len(raw) - 1)


def _tables(table: Table) -> list[Table]:
    """The table and all tables in it."""
    inner = [t for value in table.values() if isinstance(value, dict) for t in _tables(value)]
    return [table, *inner]


def _change_value(table: Table, raw: list[str], draw: random.Random) -> None:
    chosen = draw.choice([t for t in _tables(table) if t] or [{"rounds": 1}])
    chosen[draw.choice(list(chosen))] = _placed(raw, odd_values.in_toml(draw))


def _set_any_setting(table: Table, raw: list[str], draw: random.Random) -> None:
    path = draw.choice(odd_values.SETTINGS)
    *above, last = path.split(".")
    for step in above:
        inner = table.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        table = inner
    usual = odd_values.usual(path, draw)
    table[last] = usual if draw.random() < 0.4 else _placed(raw, odd_values.in_toml(draw))


def _rename(table: Table, raw: list[str], draw: random.Random) -> None:
    chosen = draw.choice([t for t in _tables(table) if t] or [{"rounds": 1}])
    old = draw.choice(list(chosen))
    chosen[odd_values.name(old, draw)] = chosen.pop(old)


def _move(table: Table, raw: list[str], draw: random.Random) -> None:
    """A value into another table."""
    tables = [t for t in _tables(table) if t]
    if tables:
        old = draw.choice(list(chosen := draw.choice(tables)))
        value = chosen.pop(old)
        if not isinstance(value, dict):
            draw.choice(_tables(table))[old] = value


def _drop(table: Table, raw: list[str], draw: random.Random) -> None:
    tables = [t for t in _tables(table) if t]
    if tables:
        chosen = draw.choice(tables)
        del chosen[draw.choice(list(chosen))]


def _change_spec(table: Table, raw: list[str], draw: random.Random) -> None:
    path = draw.choice(SPEC_PATHS)
    for step in path[:-1]:
        inner = table.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        table = inner
    spec: Any = odd_values.spec(path[-1], draw)
    table[path[-1]] = [spec] if path[-1] == "augment" and draw.random() < 0.9 else spec


def _nest(table: Table, raw: list[str], draw: random.Random) -> None:
    depth = draw.choice((2, 9, 40, 200))
    table[draw.choice(list(table) or ["train"])] = _placed(
        raw, "{a=" * depth + "1" + "}" * depth if draw.random() < 0.5 else "[" * depth + "]" * depth
    )


STRUCTURAL = (_change_value, _set_any_setting, _set_any_setting, _rename, _move, _drop,
              _change_spec, _change_spec, _nest)  # fmt: skip


def _damaged(content: bytes, draw: random.Random) -> bytes:
    """The text with bytes changed, removed, repeated or put in."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(len(data) + 1)
        length = draw.choice((1, 1, 3, 20))
        match draw.randrange(5):
            case 0:
                data[at : at + length] = draw.randbytes(length)
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = data[at : at + length] * draw.choice((1, 1, 50))
            case 3:
                data[at:at] = draw.choice(odd_values.PIECES)
            case 4:
                del data[at:]
    return bytes(data)


def _assignment(start: Table, draw: random.Random) -> str:
    """The value of one --set, mostly of the form name=value."""
    path = draw.choice(odd_values.SETTINGS)
    if draw.random() < 0.2:
        path = odd_values.name(path, draw)
    if draw.random() < 0.2:
        return (
            f"{draw.choice(('model', 'data.partition', 'sample'))}={odd_values.spec('model', draw)}"
        )
    return draw.choice(("{}={}", "{}={}", "{} = {}", "{}", "={}", "{}.x={}")).format(
        path, odd_values.in_python(draw)
    )


# ------------------------------------------------------------------ outcomes


def outcome(case: Case, file: Path, with_command: bool = False) -> tuple[str, str]:
    """How the case ends, and what was said."""
    file.write_bytes(case.content)
    if with_command and (problem := _problem_of_command(case, file)):
        return "traceback", problem
    try:
        config = load(lay_over({}, file, {}, list(case.sets)), f"'{file}'")
        check_names(config)
    except UserError as error:
        return "rejected", str(error)
    except BaseException as error:
        return "traceback", f"{type(error).__name__}: {error}"
    wrong = next(misreadings(case, config), None)
    return ("silently wrong", wrong) if wrong else ("accepted", "")


def _problem_of_command(case: Case, file: Path) -> str | None:
    words = [word for text in case.sets for word in ("--set", text)]
    result = talk.CliRunner().invoke(talk.app, ["check", str(file), *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"fedloom check: {type(result.exception).__name__}: {result.exception}"
    if result.exit_code not in (0, 2) or "Traceback" in result.stderr:
        return f"fedloom check: exit code {result.exit_code}: {result.stderr}"
    return None


def misreadings(case: Case, config: Config) -> Iterator[str]:
    """Where accepted settings differ from their own text, or from the text that was given."""
    meant = config.model_dump(mode="json")
    again = load(tomllib.loads(config.text())).model_dump(mode="json")
    if json.dumps(again, sort_keys=True) != json.dumps(meant, sort_keys=True):
        yield f"its own text reads as {again}"
    assigned = [tuple(text.partition("=")[0].strip().split(".")) for text in case.sets]
    for path, given in leaves(tomllib.loads(case.content.decode())):
        if not any(_overlap(path, other) for other in assigned):
            yield from _misread(path, given, meant)
    if case.sets:
        value = case.sets[-1].partition("=")[2].strip()
        yield from _misread(assigned[-1], as_written(value), meant)


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every value of a table that is no table and no list, with its path."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, str(number)))
    else:
        yield path, value


def _overlap(a: Path_, b: Path_) -> bool:
    """Whether one path leads to the other; a name replaces what else stands in its table."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def _misread(path: Path_, given: Any, meant: Table) -> Iterator[str]:
    if isinstance(given, str) and _is_spec(path):
        yield from _misread_spec(path, given, _at(meant, path))
    elif isinstance(given, (bool, int, float, str)) and not same(given, _at(meant, path)):
        yield f"{'.'.join(path)} = {given!r} was read as {_at(meant, path)!r}"


def _is_spec(path: Path_) -> bool:
    names_a_spec = path[-1] == "name" and path[:-1] == ("method",)
    in_list = path[:2] == ("data", "augment") and len(path) == 3
    return names_a_spec or path in SPEC_PATHS or in_list


def _misread_spec(path: Path_, text: str, found: Any) -> Iterator[str]:
    """An independent reading of name(argument=value): every argument is in the table."""
    written = re.findall(r"([\w-]+)\s*=\s*([^,()]*)", text)
    values = [value for _, value in leaves(found)]
    for name, value in written:
        wanted = as_written(value.strip())
        if wanted is not None and not any(same(wanted, v) for v in values):
            yield f"{'.'.join(path)} = {text!r}: {name} was read as one of {values}"


def _at(table: Any, path: Path_) -> Any:
    """What stands at the path; None if there is nothing."""
    for step in path:
        if isinstance(table, list) and step.isdigit() and int(step) < len(table):
            table = table[int(step)]
        elif isinstance(table, Mapping):
            table = table.get(step)
        else:
            return None
    return table


def as_written(text: str) -> Any:
    """A value of the command line as a person reads it; None for what is not one value."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() == "none" or text[:1] in ("[", "{", "("):
        return None
    for number in (lambda: int(text, 0), lambda: float(text)):
        try:
            value = number()
        except (ValueError, OverflowError):
            continue
        return value if abs(value) < float("inf") else text
    return text.strip("'\"")


def same(given: Any, found: Any) -> bool:
    """Equal, and both of one family: true or false, numbers, text."""
    if isinstance(given, bool) or isinstance(found, bool):
        return given is found
    if isinstance(given, (int, float)):
        return isinstance(found, (int, float)) and found in (given, float(given))
    return isinstance(found, str) and (found == given or ":" in given)


if __name__ == "__main__":
    print(dict(attack(int(sys.argv[1]), int(sys.argv[2]))))
