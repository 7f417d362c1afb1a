"""`fedloom report --html`: what the page says, that it is inert, and how large it is."""

import html
import html.parser
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import fedloom as fl
from cli.talk import TINY, fedloom, run
from fedloom.experiment.stored_run import read_run
from fedloom.reports.by_method import by_method
from fedloom.reports.comparison import compare_runs
from fedloom.reports.page.page import SECTIONS, render

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"
WORDS = ("--seeds", 3, "--rounds", 3)


class Reader(html.parser.HTMLParser):
    """The elements of a page, its text by element, and everything that loads or runs something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.risky: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        for name, value in attrs:
            loads = name in ("src", "srcset", "action", "data", "poster", "style", "xlink:href")
            away = name == "href" and not (value or "").startswith("#")
            if loads or away or name.startswith("on"):
                self.risky.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page(*folders: object, words: tuple[object, ...] = ()) -> str:
    fedloom("report", *folders, "--html", "page.html", *words)
    return Path("page.html").read_text(encoding="utf-8")


def compared(desk: Path, methods: str = "fedavg,fedprox(mu=1),ditto") -> list[Path]:
    fedloom("compare", "--methods", methods, *TINY, *WORDS, "--out", "all")
    return sorted(p.parent for p in desk.glob("all/*/*/config.toml"))


def section(text: str, name: str) -> str:
    """The words of a section."""
    found = re.search(rf'<section id="{name}">(.*?)</section>', text, re.DOTALL)
    assert found is not None, name
    return " ".join(Reader(found[1]).words)


def test_the_page_has_every_part_and_needs_nothing_else(desk: Path) -> None:
    text = page(*compared(desk))
    read = Reader(text)
    assert not read.risky
    assert read.names.count("script") == read.names.count("style") == 1
    assert not {"link", "iframe", "object", "embed", "img", "form", "base"} & set(read.names)
    assert "http:" not in text and "https:" not in text
    for name in SECTIONS.keys() - {"metrics"}:  # which were not asked for
        assert section(text, name)
    said = section(text, "summary")
    assert "3 methods on tiny, 8 clients, dirichlet(alpha=0.3)" in said
    assert "95 % confidence interval" in said and "paired over 3 seeds" in said


def test_figures_are_those_of_the_comparison(desk: Path) -> None:
    folders = compared(desk)
    text = page(*folders)
    rows = compare_runs(by_method([read_run(f) for f in folders])).rows
    assert [row.name for row in rows] == ["fedavg", "ditto", "fedprox(mu=1)"]
    for row in rows:
        assert f"{100 * row.mean:.2f}" in section(text, "results")
        assert f"{100 * row.curve[-1][1]:.1f}" in section(text, "curves")
    assert "target" in section(text, "curves") and "accuracy of fedavg" in section(text, "curves")
    assert "lowest and the highest seed" in section(text, "curves")
    assert "ditto (same curve as fedavg)" in section(text, "curves")
    assert "Differences from fedavg" in section(text, "differences")
    assert "Who holds what: dirichlet(alpha=0.3)" in section(text, "partition")
    assert "None: all 81 replies were used" in section(text, "rejected")
    assert "9 runs" in section(text, "machine")
    command = "fedloom compare --methods 'fedavg,ditto,fedprox(mu=1)' --seeds 3"
    assert command in section(text, "rerun")


def test_one_seed_has_no_interval_and_the_page_says_so(desk: Path) -> None:
    for method in ("fedavg", "fedprox"):
        run(desk / method, "--method", method)
    text = page(desk / "fedavg", desk / "fedprox")
    assert "there is no confidence interval" in section(text, "summary")
    assert "Each method has one seed" in section(text, "differences")


def test_runs_that_are_not_finished_and_single_runs(desk: Path) -> None:
    run(desk / "a")
    (desk / "a/result.json").unlink()
    text = page(desk / "a")
    assert "Not finished yet" in section(text, "summary")
    assert "No run is finished" in section(text, "clients")
    assert '<section id="differences">' not in text  # there is nothing to compare it with


def test_without_the_data_the_page_says_why_pictures_are_missing(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(desk / "a")
    monkeypatch.setenv("FEDLOOM_HOME", str(desk / "elsewhere"))
    text = page(desk / "a")
    for name in ("partition", "clients", "cost"):
        assert "not shown: " in section(text, name) and "tiny" in section(text, name)
    assert "class 0" in section(text, "classes")


def test_names_of_classes_are_shown_instead_of_numbers(desk: Path) -> None:
    lines = ["a,b,kind", *(f"{n % 7},{n % 3},{('calm', 'wild <b>')[n % 2]}" for n in range(80))]
    (desk / "animals.csv").write_text("\n".join(lines))
    fedloom("data", "add", "animals", "--from", "animals.csv", "--option", "target=kind")
    words = ("--data", "animals", "--model", "mlp", "--clients", 3, "--per-round", 2)
    fedloom("run", *words, "--rounds", 1, "--partition", "iid", "--out", "zoo")
    text = page("zoo")
    for name in ("partition", "classes", "clients"):
        assert "wild <b>" in section(text, name) and "calm" in section(text, name)
    assert "b" not in Reader(text).names


def hostile_run(desk: Path) -> Path:
    """A folder of a stranger, with markup wherever text can stand."""
    run(desk / "bad")
    config = (desk / "bad/config.toml").read_text()
    name = json.dumps(HOSTILE.replace("(", "[").replace(")", "]"))
    config = re.sub(r'(?m)^name = "fedavg"$', lambda _: f"name = {name}", config)
    config = re.sub(r'(?m)^name = "tiny"$', lambda _: f"name = {json.dumps(HOSTILE)}", config)
    (desk / "bad/config.toml").write_text(config)
    (desk / "bad/result.json").unlink()  # the settings do not fit it any more
    last = json.loads((desk / "bad/metrics.jsonl").read_text().splitlines()[-1])
    more = {**last, "round": 4, "rejected": {"1": HOSTILE}, "skipped": HOSTILE}
    with (desk / "bad/metrics.jsonl").open("a") as file:
        file.write(json.dumps(more) + "\n")
    (desk / "bad/analysis").mkdir()
    figures = {"round": HOSTILE, "loss": 1, "trace": {"hutchinson": {"value": HOSTILE}}}
    (desk / "bad/analysis/analysis.json").write_text(json.dumps(figures))
    named = desk / "<b onclick=alert(3)>"
    shutil.move(desk / "bad", named)
    return named


def test_nothing_in_a_run_becomes_markup(desk: Path) -> None:
    folder = hostile_run(desk)
    text = page(folder)
    read = Reader(text)
    assert not read.risky and read.names.count("script") == 1
    assert not {"img", "b"} & set(read.names)
    assert HOSTILE in section(text, "rejected")  # shown as it is, as text
    assert "<b onclick=alert(3)>" in section(text, "summary")
    assert re.search(r"script-src '(sha256-[^']+)'; ", html.unescape(text)) is not None
    assert "unsafe" not in text  # no policy that lets other scripts run
    assert "<script" not in fedloom("report", folder, "--md").out.replace(r"\<", "")


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000, '{"eigen": {"values": 3}}'])
def test_a_damaged_analysis_does_not_stop_the_page(desk: Path, text: str) -> None:
    run(desk / "a")
    (desk / "a/analysis").mkdir()
    (desk / "a/analysis/analysis.json").write_text(text)
    assert section(page(desk / "a"), "curvature")


def test_an_analysis_is_shown(desk: Path) -> None:
    run(desk / "a")
    fedloom("analyze", "a", "--only", "eigen,trace,drift", "--samples", 20, "--probes", 3)
    found = json.loads((desk / "a/analysis/analysis.json").read_text())
    said = section(page(desk / "a"), "curvature")
    assert f"{max(map(abs, found['eigen']['values'])):.4g}" in said
    assert f"{found['trace']['hutch++']['value']:.4g} ±" in said


@pytest.mark.slow
def test_thirty_runs_of_many_rounds_and_clients_stay_small(desk: Path) -> None:
    run(desk / "a", rounds=1)
    line = json.loads((desk / "a/metrics.jsonl").read_text())
    (desk / "a/result.json").unlink()
    shutil.rmtree(desk / "a/checkpoint")
    (desk / "a/checkpoint").mkdir()
    config = (desk / "a/config.toml").read_text().replace("clients = 8", "clients = 24")
    rows = [json.dumps({**line, "round": n, "accuracy": n / 1000}) for n in range(1, 1001)]
    for seed in range(30):
        shutil.copytree(desk / "a", desk / f"r{seed}")
        own = config.replace("seed = 0", f"seed = {seed % 3}")
        own = own.replace('name = "fedavg"', f'name = "method-{seed // 3}"')
        (desk / f"r{seed}/config.toml").write_text(own)
        (desk / f"r{seed}/metrics.jsonl").write_text("\n".join(rows) + "\n")
    text = page(*(desk / f"r{n}" for n in range(30)))
    assert "10 methods" in section(text, "summary")
    assert len(text.encode()) < 2_000_000


class Crash(fl.Callback):
    """Ends a run after its first round, as a crash would."""

    def on_round(self, record: fl.RoundRecord) -> None:
        raise OSError("the power fails")


def after_a_round(folder: Path, evaluated_every: int) -> None:
    settings = {"data": "tiny", "model": "mlp(layers=1,width=4)", "clients": 8, "per_round": 3}
    evaluate = {"every": evaluated_every}
    with pytest.raises(OSError, match="power"):
        fl.Experiment(rounds=3, evaluate=evaluate, **settings).run(folder, callbacks=[Crash()])


def test_runs_that_cannot_be_shown_yet_are_named_with_a_command_that_works(desk: Path) -> None:
    begun, other, half = desk / "a <b>'s", desk / "begun", desk / "half"
    for folder, every in ((begun, 3), (other, 3), (half, 1)):
        after_a_round(folder, every)
    said = fedloom("report", half, begun, other, "--html", "page.html", code=2).flat
    assert f"'{half}' is not finished; this is its first round" in said
    assert said.count("has no evaluation yet") == 2
    assert f"fedloom resume {shlex.quote(str(begun))} (or leave it out)" in said
    assert not Path("page.html").exists()
    assert "1 of 3" in section(page(half), "summary")


def test_tables_for_papers(desk: Path) -> None:
    folders = compared(desk, "fedavg,fedprox")
    md = fedloom("report", *folders, "--md").out.splitlines()
    assert md[0].startswith("| method | accuracy % |") and len(md) == 4
    tex = fedloom("report", *folders, "--latex").out
    assert tex.startswith("\\begin{tabular}{l") and "fedprox & " in tex and "±" not in tex
    assert "choose one" in fedloom("report", *folders, "--md", "--latex", code=2).err


def test_a_place_that_cannot_be_written_is_said(desk: Path) -> None:
    run(desk / "a")
    assert "cannot use" in fedloom("report", "a", "--html", ".", code=2).err


def test_the_same_runs_give_the_same_page(desk: Path) -> None:
    stored = by_method([read_run(folder) for folder in compared(desk)])
    assert render(compare_runs(stored)) == render(compare_runs(stored))
