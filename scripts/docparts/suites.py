"""A suite of runs on a page: what was fixed, how it came out, and how to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from docparts.markdown import anchor, code, table, unbroken
from docparts.pictures import pictures
from docparts.result_store import RESULTS, SUITES, Run, result_of, runs_by_file
from fedloom.claims.result_files import ResultFile
from fedloom.claims.row_files import read_log
from fedloom.claims.suite_table import FigureTable, confidence, figure_tables
from fedloom.claims.suites import Suite, suites
from fedloom.settings.presets import preset

SHOWN_DIGITS = 12  # of a checksum; the result file has all of them
COMMIT_DIGITS = 7
SOURCES = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}
MET = {True: "met", False: "**not met**", None: "not known"}
INTERVAL = "interval"  # a column that is not to be broken over lines


def suite(name: str) -> Callable[[Path], str]:
    """The section of a suite."""

    def markdown(root: Path) -> str:
        found, result = suites()[name], result_of(root, name)
        parts = [f"### {heading(name)}", f"{found.title}. Scale: {found.scale}."]
        if result is None:
            parts += ["**Not run yet.**", _facts(_planned(found)), _command(found)]
        else:
            parts += [_facts(_done(found, result)), _command(found)]
            parts += _tables(result, root)
        return "\n\n".join(parts)

    return markdown


def heading(name: str) -> str:
    """The heading of a suite's section."""
    return f"Suite {name}"


def link(name: str, page: str = "") -> str:
    """A link to the section of a suite. page: where it is, if not on the same one."""
    return f"[{name}]({page}#{anchor(heading(name))})"


def _facts(facts: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)


def _planned(found: Suite) -> dict[str, str]:
    return {
        "seeds": ", ".join(map(str, found.seeds)),
        "gate": "; ".join(map(condition, found.gate)) or "nothing beyond the scale",
        "gate, tried beforehand": _trials(found),
    }


def _done(found: Suite, result: ResultFile) -> dict[str, str]:
    seeds = sorted({run["seed"] for run in result.runs})
    planned = _planned(found)
    return {
        **planned,
        "seeds": ", ".join(map(str, seeds)) or planned["seeds"],
        "gate, in these runs": _gates(result),
        "scale, seeds, gate and rule fixed at": _commit(result.fixed_at),
        "run at": _commit(result.commit),
        "machine": _machine(result.machine),
        "time": _time(result.runs),
        "diverged, without figures": ", ".join(f"`{name}`" for name in result.gave_up),
        "planned, but not run yet": ", ".join(_not_run(found, result)),
    }


def _not_run(found: Suite, result: ResultFile) -> list[str]:
    """The rows of the suite that have no run on one of their seeds."""
    if result.gave_up:  # runs that diverged have no figures either
        return []
    made = {(row["preset"], row["row"], run["seed"]) for run in result.runs for row in run["rows"]}
    return [
        f"{row} ({group.preset})"
        for group in found.runs
        for row in group.rows
        if any((group.preset, row, seed) not in made for seed in group.seeds)
    ]


def _gates(result: ResultFile) -> str:
    """Whether the gate was met, and those of claims that need something else."""
    others: dict[str, list[str]] = {}
    for claim, gate in result.gate_by_claim.items():
        others.setdefault(f"{MET[gate.met]}: {gate.why}", []).append(f"`{claim}`")
    parts = [f"for {', '.join(claims)}: {said}" for said, claims in others.items()]
    return "; ".join([f"{MET[result.gate.met]}: {result.gate.why}", *parts])


def _commit(commit: str) -> str:
    """One commit, or several separated by commas where seeds were run at different ones."""
    short = " and ".join(f"`{each[:COMMIT_DIGITS]}`" for each in commit.split(", "))
    return f"commit {short}" if commit else "not known"


def _machine(machine: Mapping[str, Any]) -> str:
    """The processor and the builds of torch and Python; several where runs differ."""
    titles = {"cpu": "", "torch": "torch ", "python": "Python "}
    return ", ".join(
        f"{title}{' and '.join(value) if isinstance(value, list) else value}"
        for name, title in titles.items()
        if (value := machine.get(name))
    )


def _time(runs: Sequence[Run]) -> str:
    """Rounds that one run took over from another have the same seconds and count once."""
    if not runs:
        return ""
    hours = sum(seconds for _, seconds in {(r["seed"], r["seconds"]) for r in runs}) / 3600
    return f"{hours:.2f} core-hours of training rounds, {len(runs)} runs"


def _trials(found: Suite) -> str:
    if not found.gate:
        return ""
    seed = f"on seed {found.gate_seed}, which is not reported, unless a line names another seed"
    return "".join([seed, *(f"\n    - {trial}" for trial in found.tried)])


def condition(gate: Mapping[str, Any]) -> str:
    """A condition of a gate in words."""
    return CONDITIONS[gate["kind"]](gate)


CONDITIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = MappingProxyType(
    {
        "score": lambda g: f"{g['of']} has more than {g['above']:g} %",
        "gain": lambda g: f"{g['better']} gains at least {g['at_least']:g} on {g['than']}",
        "plateau": lambda g: (
            f"{g['of']} gains less than {g['below']:g} over the last {100 * g['last']:.0f} % "
            "of the rounds"
        ),
        "train_loss": lambda g: (
            f"the training loss of {g['of']} falls below {g['below']:g} by round {g['by_round']}"
        ),
        "client_size": lambda g: f"clients hold at least {g['at_least']:g} samples on average",
    }
)


def _command(found: Suite) -> str:
    if found.commands:
        return code("\n".join(found.commands), "sh")
    gate = [f"fedloom reproduce --gate {found.id}"] if found.gate else []
    lines = [*(_add(name) for name in _data_names(found)), *gate]
    return code("\n".join([*lines, f"fedloom reproduce --suite {found.id} --jobs 2"]), "sh")


def _add(name: str) -> str:
    return f"fedloom data add {name} --from {SOURCES.get(name, name)}"


def _data_names(found: Suite) -> list[str]:
    """The data sets that its presets use at small scale."""
    names: dict[str, None] = {}
    for group in found.runs:
        whole = preset(group.preset).table
        assert whole is not None  # a suite consists of tables
        part = whole.at("small", group.rows, group.columns)
        for column in part.columns:
            names[part.run_settings(part.rows[0], column, "small")["data"]["name"]] = None
    return list(names)


def _tables(result: ResultFile, root: Path) -> list[str]:
    if not result.runs:  # counted costs, which the table of claims shows
        return [f"All figures: [{result.suite}.json]({_up(RESULTS)}/{result.suite}.json)."]
    drawn = {picture.path.stem: picture for picture in pictures(root, result.suite)}
    parts = [
        "Gains and ratios are relative to the row named above each table; intervals are "
        f"{_level(result)}. The legend of each picture explains its numbers."
    ]
    for found in figure_tables(result):
        parts.append(_table(found))
        if (picture := drawn.pop(found.preset.rpartition("/")[2], None)) is not None:
            place = picture.path.relative_to(Path("docs") / "results").as_posix()
            parts.append(f"![{picture.about.replace(chr(10), ', ')}]({place})")
    return [*parts, _rows(result, root)]


def _level(result: ResultFile) -> str:
    again = ", after the one extension to more seeds" if result.extended else ""
    return f"paired t intervals, {100 * confidence(result):.0f} %{again}"


def _table(found: FigureTable) -> str:
    about = f"`{found.preset}`, column `{found.column}`: {found.metric}"
    place = found.heads.index(INTERVAL)
    lines = [[*line[:place], unbroken(line[place]), *line[place + 1 :]] for line in found.lines]
    parts = [f"{about}; compared with {found.base}", table(found.heads, lines), *found.notes]
    return "\n\n".join(parts)


def _up(path: Path) -> str:
    """A folder of the repository, from docs/results."""
    return f"../../{path.as_posix()}"


def _rows(result: ResultFile, root: Path) -> str:
    """Settings, log and weights of every row, folded."""
    by_file = runs_by_file(result)
    seen: dict[tuple[str, ...], str] = {}
    lines = []
    for name, runs in by_file.items():
        weights = tuple(run["weights_sha256"] for run in runs)
        shown = ", ".join(f"{r['seed']}: `{r['weights_sha256'][:SHOWN_DIGITS]}`" for r in runs)
        first = seen.setdefault(weights, name)
        lines.append(
            [
                "<br>".join(f"{row['row']} ({row['preset']})" for row in runs[0]["rows"]),
                f"[settings](suites/{result.suite}/{name}.toml)",
                f"[log](suites/{result.suite}/{name}.csv){_shared(root, result, name)}",
                shown if first == name else f"as {first}",
            ]
        )
    heads = ["row", "settings", "log", f"final weights, SHA-256 by seed ({SHOWN_DIGITS} digits)"]
    where = f"[{result.suite}.json]({_up(RESULTS)}/{result.suite}.json)"
    about = f"All checksums, of settings, logs and weights, are in {where}."
    title = "<summary>Settings, logs and weights of every row</summary>"
    return f'<details markdown="1">\n{title}\n\n{about}\n\n{table(heads, lines)}\n\n</details>'


def _shared(root: Path, result: ResultFile, name: str) -> str:
    shared = read_log(root / SUITES / result.suite / f"{name}.csv").shared
    return f", rounds of {shared}" if shared else ""
