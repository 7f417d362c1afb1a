"""Every command on the pages of results runs, at toy size.

The data sets are a few made-up samples in the formats of the real files, under their names. Each
command of a page runs in the page's order, with toy settings laid over its own. Of each page one
suite is run from its plan to its verdicts; other suites, and tables, are planned and checked
(--dry-run), which builds every model and method of every cell. Placeholders such as RUN are
replaced by runs of that suite.
"""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks import steps
from docparts.result_store import RESULTS
from reading import ROOT, named, shown

from cli.talk import Said, fedloom
from data import writers
from fedloom.claims.estimate import Rate
from fedloom.claims.suites import suites
from fedloom.experiment.prepare import prepare
from fedloom.inspect import cost_tables
from fedloom.settings.config import Config

FOLDER = ROOT / "docs" / "results"
FULL = {  # by page, the suite that is run
    "README.md": "mix-cnn",
    "fedalign.md": "align-overfit",
    "fedmlb.md": "mlb50-momentum",
    "fedmix.md": "mix-writers",
    "fedafa.md": "afa-c100",
}
TOY = (
    "--clients 5 --per-round 2 --rounds 2 --jobs 1 --engine inprocess --set train.batch=10 "
    "--set data.classes=None --set data.pixels=8 --set data.per_class=None --set train.epochs=1 "
    "--set evaluate.every=1 --set data.augment=[] --set data.longtail=1 --set sample.name=uniform "
    "--set device=cpu"
)
FEWER_ROLES = ("--option", "users=2", "--option", "min_samples=5")
MODELS = {
    "fedalign": "resnet(depth=8,width=4)",
    "fedmlb": "resnet8(width=4)",
    "fedmix": "mlp(layers=1,width=4)",
    "fedafa": "resnet8(width=4)",
}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a reader who has downloaded the data sets; the working directory."""
    folder = tmp_path_factory.mktemp("reader")
    labels = list(range(10)) * 4
    batches = {f"data_batch_{n}": labels for n in range(1, 6)} | {"test_batch": labels}
    writers.cifar10(folder / "cifar-10-batches-bin", batches)
    writers.cifar100(folder / "cifar-100-binary", train=list(range(100)) * 2, test=range(100))
    (folder / "mnist-writers").mkdir()
    for split, first in (("train", 0), ("test", 5)):
        pixels = np.arange(60)[:, None, None].repeat(28, 1).repeat(28, 2).astype(np.uint8)
        facts = {"x": pixels, "y": np.arange(60) % 10, "writer": first + np.arange(60) // 12}
        np.savez(folder / "mnist-writers" / f"{split}.npz", **facts)
    line = "the course of true love never did run smooth " * 2
    text = {f"role {n}": ([line[i : i + 80] for i in range(9)], list("abcdefghi")) for n in (1, 2)}
    writers.leaf(folder / "leaf" / "shakespeare" / "all_data.json", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLOOM_HOME", str(folder / "home"))
        patch.setenv("MPLBACKEND", "agg")
        patch.chdir(folder)
        patch.setattr("fedloom.claims.analyses.run_analyses", lambda *_: None)  # has its own tests
        patch.setattr("fedloom.claims.estimate.measure", built)
        for words in sorted({tuple(w) for page in FULL for w in command_lines(page)}):
            if words[1] == "data":
                fewer = words[3] == "shakespeare"
                fedloom(*words[1:], *(FEWER_ROLES if fewer else ()))
        yield folder


def built(config: Config) -> Rate:
    """In place of a measurement: data, clients, model and method are built, and nothing is run."""
    with prepare(config):
        return Rate(1.0, 1.0, 1.0, "made up")


def toy(words: list[str]) -> list[str]:
    """A command of the page with toy settings; the last value of an option counts."""
    text = shlex.join(words)
    paper = next((name for name in MODELS if f"{name}/" in text or name in of_suite(words)), "")
    return [*words, *TOY.split(), "--model", MODELS[paper]]


def of_suite(words: list[str]) -> list[str]:
    """The papers of the suite that a command names."""
    named_suites = [b for a, b in itertools.pairwise(words) if a in ("--suite", "--gate")]
    return [paper for name in named_suites for paper in suites()[name].papers]


def run_reproduce(words: list[str], page: str) -> Said:
    words = [word.replace("TABLE", "table1-cifar10") for word in words]
    is_full = f"--suite {FULL[page]}" in " ".join(words) and "--dry-run" not in words
    if is_full:
        return fedloom(*toy(words), "--seeds", 1, "--out", f"runs/{page}")
    if "fedalign/table1" in words:  # the next command analyses its runs
        return fedloom(*toy(words), "--seeds", 1, "--rows", "fedavg")
    return fedloom(*toy(words), *([] if "--dry-run" in words else ["--dry-run"]))


def run_analyze(words: list[str], page: str) -> Said:
    path = words[1].replace("METHOD", "fedavg").replace("SEED", "0")
    return fedloom("analyze", path, *words[2:], "--samples", 8, "--probes", 3, "--clients", 2)


def run_report(words: list[str], page: str) -> Said:
    """On runs of the page's suite."""
    runs = sorted(Path(f"runs/{page}").glob("*/seed-0"))
    options = words[next(n for n, word in enumerate(words) if word.startswith("--")) :]
    return fedloom("report", *runs, *options)


def run_cost(words: list[str], page: str) -> Said:
    if "--method" in words:
        return fedloom(*words, "--model", "resnet8(width=4)", "--shape", "3x8x8", "--no-measure")
    row = cost_tables.Row("Plain", "fedavg", "toy", "0.0003", "0.1", {})
    case = cost_tables.Case("mlp(layers=1,width=4)", (1, 8, 8), 4, note="a small one")
    cost_tables.table(words[1])  # it exists
    with pytest.MonkeyPatch.context() as patch:
        small = cost_tables.CostTable(words[1], {"toy": case}, (row,))
        patch.setattr(cost_tables, "table", lambda name: small)
        return fedloom(*words)


RUN = {
    "reproduce": run_reproduce,
    "analyze": run_analyze,
    "report": run_report,
    "cost": run_cost,
}


def command_lines(page: str) -> list[list[str]]:
    return shown(FOLDER / page)


@pytest.mark.slow
@pytest.mark.parametrize("page", FULL)
def test_the_commands_of_a_page_run_at_toy_size(page: str, place: Path) -> None:
    for words in command_lines(page):
        if words[:3] == ["python", "-m", "benchmarks.steps"]:
            assert words[3] == "--only" and set(words[4].split(",")) <= set(steps.SUITES)
        elif words[1] == "data":
            assert (place / "home" / "data" / words[3]).exists()  # added by the fixture
        else:
            RUN[words[1]](words[1:], page)
    (file,) = place.glob(f"**/{FULL[page]}.json")  # of the suite that was run
    assert list(file.with_suffix("").glob("*.csv"))


def test_every_page_of_results_is_run() -> None:
    with_commands = {page.name for page in FOLDER.glob("*.md") if shown(page)}
    assert with_commands == set(FULL)


def test_every_suite_has_its_command_on_a_page() -> None:
    lines = [shlex.join(words) for page in FULL for words in command_lines(page)]
    for name, suite in suites().items():
        wanted = [f"fedloom reproduce --suite {name} --jobs 2"] if suite.runs else suite.commands
        assert [line for line in wanted if line not in lines] == []


def test_commands_in_sentences_name_what_exists() -> None:
    """Commands inside a line of text are too short for a block; they parse in test_commands.py."""
    from fedloom.settings.presets import names

    for page in FULL:
        text = (FOLDER / page).read_text(encoding="utf-8")
        for name in re.findall(r"`fedloom (?:reproduce|presets) (\w+/[\w-]+)`", text):
            assert name in names() or name.endswith("TABLE"), f"{named(FOLDER / page)}: {name}"
    assert (ROOT / RESULTS).is_dir()
