"""Workflows, templates and the release script: valid, modest in their rights, calling what exists.

GitHub itself is not asked. A step's commands are read, not run.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="comes with the documentation site's tools")

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
TEXTS = [*WORKFLOWS, *FORMS, *sorted(GITHUB.glob("*.md")), ROOT / "CONTRIBUTING.md"]
READS = {"contents": "read"}
BASH = {"shell": "bash"}
RELEASE = ROOT / "scripts/release.py"

every_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda f: f.stem)


def read(file: Path) -> dict[str, Any]:
    """A YAML file. YAML 1.1 takes the key `on` for the value true."""
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {"on" if name is True else name: value for name, value in found.items()}


def steps(file: Path) -> Iterator[dict[str, Any]]:
    for job in read(file)["jobs"].values():
        yield from job.get("steps", ())


def commands(file: Path) -> Iterator[str]:
    """Every line that a step runs."""
    for step in steps(file):
        yield from step.get("run", "").splitlines()


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))


def called_targets(text: str) -> set[str]:
    """The targets of `make ...` in commands and in code, such as `make lint types`."""
    calls = re.findall(r"(?:^|`|run: )make((?: [a-z-]+)+)", text, re.MULTILINE)
    return {target for call in calls for target in call.split()}


def test_there_are_workflows_and_templates() -> None:
    assert [file.stem for file in WORKFLOWS] == ["ci", "release"]
    assert {"bug", "method", "wrong_result"} <= {file.stem for file in FORMS}


@pytest.mark.parametrize("file", TEXTS, ids=lambda f: f.name)
def test_targets_of_make_exist(file: Path) -> None:
    missing = called_targets(file.read_text(encoding="utf-8")) - make_targets()
    assert missing == set()


def test_targets_are_recognised() -> None:
    text = "make setup       # once\n- run: make dist\nand `make lint types`; please make sure"
    assert called_targets(text) == {"setup", "dist", "lint", "types"}


@every_workflow
def test_jobs_have_few_rights_and_a_time_limit(file: Path) -> None:
    flow = read(file)
    assert flow["permissions"] == READS and "concurrency" in flow
    for name, job in flow["jobs"].items():
        assert "uses" in job or job["timeout-minutes"] <= 120, name
        assert "write" not in str(job.get("permissions", "")) or name in ("pypi", "github")
    assert "secrets." not in file.read_text(encoding="utf-8")


@every_workflow
def test_what_workflows_name_exists(file: Path) -> None:
    flow = read(file)
    for job in flow["jobs"].values():
        assert set(as_list(job.get("needs"))) <= set(flow["jobs"])
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
            assert "workflow_call" in read(ROOT / job["uses"])["on"]
    for line in commands(file):
        for path in re.findall(r"(?<![\w/.])((?:\.ci|\.github|scripts|tests)/[\w./-]+)", line):
            assert (ROOT / path).exists(), line


def as_list(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


@every_workflow
def test_actions_have_a_version_and_do_not_keep_credentials(file: Path) -> None:
    for step in (step for step in steps(file) if "uses" in step):
        name, _, version = step["uses"].partition("@")
        assert re.fullmatch(r"v\d+|release/v\d+|[0-9a-f]{40}", version), step["uses"]
        if name == "actions/checkout":
            assert step["with"] == {"persist-credentials": False}


def test_ci_calls_what_a_developer_calls_and_has_a_browser() -> None:
    jobs = read(GITHUB / "workflows/ci.yml")["jobs"]
    linux = [step.get("run", "") for step in jobs["linux"]["steps"]]
    assert ".ci/run" in linux
    assert any("chromium chromium-driver" in run for run in linux)
    ours = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "chromium chromium-driver" in ours and "--allowed-skips=tests/allowed_skips.txt" in ours


def test_the_tests_of_other_systems_exist() -> None:
    lines = (GITHUB / "in_process_tests.txt").read_text(encoding="utf-8").split()
    assert lines and all((ROOT / line).exists() for line in lines)
    (test,) = [c for c in commands(GITHUB / "workflows/ci.yml") if "-m pytest" in c]
    assert read(GITHUB / "workflows/ci.yml")["jobs"]["in-process"]["defaults"]["run"] == BASH
    assert "not posix" in test and "@.github/in_process_tests.txt" in test


def test_extras_of_other_systems_exist() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (install,) = [c for c in commands(GITHUB / "workflows/ci.yml") if "--editable" in c]
    (named,) = re.findall(r"\.\[([a-z,]+)\]", install)
    assert set(named.split(",")) <= set(extras["optional-dependencies"])


@pytest.mark.parametrize("file", FORMS, ids=lambda f: f.stem)
def test_forms_are_complete(file: Path) -> None:
    form = read(file)
    if file.stem == "config":
        return
    assert form["name"] and form["description"]
    fields = [item for item in form["body"] if item["type"] != "markdown"]
    assert len({item["id"] for item in fields}) == len(fields)
    assert all(item["attributes"]["label"] for item in fields)
    asks = file.read_text(encoding="utf-8")
    assert "fedloom doctor" in asks or file.stem == "method"


def test_links_of_the_security_policy_lead_somewhere() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert "docs/security.md" in links and all((ROOT / link).is_file() for link in links)


CHANGES = """# Changelog

## [1.2.0] - {date}

### Added

- A thing.

## [1.1.0] - 2025-01-01

- Older.
"""


def release(folder: Path, *words: str, version: str = "1.2.0", date: str = "2026-01-31") -> Any:
    """The script, in a project with this version and this date in its changelog."""
    (folder / "src/fedloom").mkdir(parents=True)
    (folder / "scripts").mkdir()
    (folder / "src/fedloom/__init__.py").write_text(f'"""Doc."""\n\n__version__ = "{version}"\n')
    (folder / "CHANGELOG.md").write_text(CHANGES.replace("{date}", date))
    (folder / "scripts/release.py").write_bytes(RELEASE.read_bytes())
    script = str(folder / "scripts/release.py")
    return subprocess.run([sys.executable, script, *words], capture_output=True, text=True)


def test_a_release_with_its_tag_version_and_date_passes(tmp_path: Path) -> None:
    done = release(tmp_path, "check", "v1.2.0")
    assert (done.returncode, done.stdout) == (0, "1.2.0 can be released\n")


@pytest.mark.parametrize(
    ("tag", "version", "date", "why"),
    [
        ("v1.2.1", "1.2.0", "2026-01-31", "the tag is v1.2.1, and src/fedloom/__init__.py has ver"),
        ("1.2.0", "1.2.0", "2026-01-31", "tag the commit v1.2.0"),
        ("v1.2.0", "1.2.0", "Unreleased", "write the day, as 2026-01-31"),
        ("v1.3.0", "1.3.0", "2026-01-31", "has no section '## [1.3.0] - DATE'; it has: 1.2.0, 1.1"),
    ],
)
def test_a_release_that_does_not_fit_is_refused(
    tmp_path: Path, tag: str, version: str, date: str, why: str
) -> None:
    done = release(tmp_path, "check", tag, version=version, date=date)
    assert done.returncode == 1 and why in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("tag", "notes"), [("v1.2.0", "### Added\n\n- A thing.\n"), ("v1.1.0", "- Older.\n")]
)
def test_notes_are_the_section_of_the_version(tmp_path: Path, tag: str, notes: str) -> None:
    assert release(tmp_path, "notes", tag).stdout == notes


def test_our_changelog_has_a_section_of_our_version() -> None:
    import fedloom

    words = [sys.executable, str(RELEASE), "notes", f"v{fedloom.__version__}"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("### Added")
