"""How to run it again: the command, and all settings."""

from __future__ import annotations

from fedloom.experiment.stored_run import StoredRun
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, folded, joined, note, section
from fedloom.reports.rerun import compare_command, run_command

ONE_COMMAND = "This command makes all of these runs again, in a new folder with --out FOLDER."
EACH = "The commands of the single runs"
NO_COMMAND = "The settings of '{}' do not fit on a command line; save them as run.toml (below)."
OWN_CODE = (
    "These runs use code that is not part of fedloom. To run a command below is to run that code: "
    "read it first."
)


def repeat(facts: Facts) -> Html:
    """One command for everything where there is one, the commands of all runs, and settings."""
    together = compare_command(facts.runs)
    own_code = any(run.config.references for run in facts.all_runs)
    parts: list[object] = [element("p", OWN_CODE, class_="warning") if own_code else None]
    if together is not None:
        parts += [note(ONE_COMMAND), element("pre", together)]
    commands = element("div", *(_command(run) for run in facts.all_runs))
    parts.append(folded(EACH, commands) if together else commands)
    parts.append(note("Or save settings as run.toml, then: ", element("code", _FROM_FILE)))
    for name, group in facts.runs.items():
        settings = element("pre", group[0].config.text())
        parts.append(folded(f"Settings of {name}, seed {group[0].config.seed}", settings))
    return section("Run it again", "rerun", *parts)


_FROM_FILE = "fedloom run --config run.toml"


def _command(run: StoredRun) -> Html:
    command = run_command(run.config)
    written = note(NO_COMMAND.format(run.name)) if command is None else element("pre", command)
    return joined([note(run.name), written])
