"""Bad input ends with exit code 2 and a message: thing, value, choices or nearest name, remedy."""

import os
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from cli import bad_files
from cli.talk import TINY, fedloom, run
from fedloom.runs.folder import RunFolder

Rows = dict[str, tuple[str, ...]]

# A row that starts with a flag is a tiny run into the folder `new`, which must not be created.
SETTINGS: Rows = {
    "check typo.toml": (
        "2 problems",
        "no setting 'train.momentun'",
        "did you mean 'momentum'?",
        "lr, batch, epochs",
    ),
    "check type.toml": ("rounds='ten'", "integer", "rounds of training"),
    "check range.toml": ("train.momentum=1.5", "less than 1", "0 is plain SGD"),
    "check broken.toml": ("'broken.toml' is not TOML", "line 1", "fix that line"),
    "check absent.toml": ("'absent.toml' does not exist", "give the path of a TOML file"),
    "check binary.toml": ("'binary.toml' cannot be read", "give a text file in TOML"),
    "check empty": ("'empty' cannot be read", "directory", "give a text file"),
    "check nesterov.toml": ("nesterov=true needs momentum", "set train.momentum=0.9"),
    "check many.toml": (
        "4 problems",
        "rounds=0",
        "did you mean 'rounds'?",
        "train.lr=-1",
        "data.clients=-4",
    ),
    "check stray.toml": ("'fedprx'", "fedprox", "method.fedprox.PARAMETER"),
    "check inner.toml": ("'mu' = 1", "method.fedprox.PARAMETER = VALUE"),
    "run --preset demoo": ("no preset 'demoo'", "did you mean 'demo'?", "fedloom presets"),
    "--rounds -1": ("rounds=-1", "greater than or equal to 1"),
    "--seed -1": ("seed=-1", "greater than or equal to 0"),
    "--set train.lr": ("--set 'train.lr'", "name=value", "for example --set train.lr=0.1"),
    "--set =3": ("--set '=3'", "name=value", "for example"),
    "--set rounds.x=3": ("rounds.x", "'rounds' is a value, not a table", "set rounds=VALUE"),
    "--set trian.lr=1": ("no setting 'trian'", "did you mean 'train'?"),
    "--set train.lr=fast": ("train.lr='fast'", "number", "learning rate"),
    "--set train.lr=inf": ("train.lr='inf'", "finite number", "learning rate"),
    "--set train=3": ("train=3 is not a table", "for example train.lr"),
    "--set model.name=3": ("model", "'name': 3", "name(argument=value)"),
    "--set method.name=3": ("method: name=3 is not a string", "write the name of a method"),
    "--set method.fedavg=3": ("'fedavg' = 3", "not a table", "method.fedavg.PARAMETER = VALUE"),
    "--set train.schedule.kind=linear": ("train.schedule.kind='linear'", "'cosine'"),
    "--set dtype=float16": ("dtype='float16'", "'float32' or 'float64'"),
    "--set guard.min_replies=9": ("guard.min_replies=9", "the 3 clients per round", "lower it"),
    "--set train.drop_last=true --set train.batch=1000": (
        "train.drop_last=true",
        "train.batch=1000",
        "lower train.batch",
    ),
    "--set 'data.augment=[\"flipp\"]'": ("no augmentation 'flipp'", "did you mean 'flip'?"),
    "--set 'data.mean=[0.5, 0.5]' --set 'data.std=[0.2]'": (
        "data.mean has 2 and data.std has 1",
        "have 1 channel;",
        "one number per channel for both",
    ),
    "--set 'data.mean=[0.5]'": (
        "data.mean has 1 and data.std has 0",
        "give one number per channel for both, or leave both out",
    ),
    "--set 'data.mean=[0.5]' --set 'data.std=[0.0]'": ("data.std", "0.0", "greater than 0"),
    "--set data.per_class=99999999999999999999": (
        "data.per_class: 99999999999999999999 is too large",
        "the largest integer is",
    ),
    "--clients 99999999999999999999": ("data.clients: 99999999999999999999 is too", "largest"),
    "--seed 9223372036854775808": ("seed: 9223372036854775808 is too large", "9223372036854775807"),
    "--workers 2000000000": ("workers=2000000000", "less than or equal to 1000000000"),
    f"--set train.lr={'-' * 5000}": ("train.lr", "5,000 characters long", "shorten it"),
    "--set train.lr=\udcff": (r"train.lr: '\udcff' is not valid Unicode", "UTF-8"),
    "--data \udcff": (r"data.name: '\udcff' is not valid Unicode", "UTF-8"),
    "check \udcff.toml": (r"'\udcff.toml' does not exist", "give the path of a TOML file"),
    "check deep.toml": ("'deep.toml' is nested too deeply", "no setting needs that"),
    "check digits.toml": ("'digits.toml' cannot be read", "4300 digits"),
    "check date.toml": ("rounds: datetime.date(1979, 5, 27) is a date", "text, a number"),
    "compare --methods fedavg --seeds 99999999999999": ("--seeds", "1<=x<=1000"),
    "--model 'mlp(layers=-1)' --method 'fedprox(mu=-1)'": ("layers=-1", "mu=-1"),
    f"--model {'x' * 300}.py:f": ("File name too long", "give the path of another file"),
    f"--method {'x' * 300}.py:f": ("File name too long", "give the path of another file"),
    "--model loop.py:f": ("Too many levels of symbolic links", "give the path of another file"),
    "--device tpu": ("no device 'tpu'", "auto, cpu, cuda, mps"),
    "--device gpu": ("no device 'gpu'", "write cuda, or auto"),
    "--engine rayy": ("no engine 'rayy'; did you mean 'ray'?", "inprocess, pool"),
}
METHODS: Rows = {
    "--method fedporx": ("no method 'fedporx'", "did you mean 'fedprox'?", "fedloom methods"),
    "--method 'fedprox(mu=-1)'": ("fedprox: mu=-1", "at least 0", "0 is FedAvg"),
    "--method 'fedprox(nu=1)'": ("no parameter 'nu'", "did you mean 'mu'?"),
    "--method 'fedprox(mu=big)'": ("mu='big' must be a number", "(weight of the proximal term"),
    "--method 'fedprox(mu)'": ("'mu' has no value", "write mu=VALUE"),
    "--method 'fedprox(0.1)'": ("fedprox: argument 0.1 has no name", "write mu=0.1"),
    "--method 'fedprox(mu=1,mu=2)'": ("'mu' is given twice", "give it once"),
    "--method 'fedprox('": (
        "'fedprox(' is not of the form",
        "name(parameter=value)",
        "fedloom methods",
    ),
    "--method ''": ("'' is not of the form", "fedloom methods"),
    "--method feddyn+fedadam": ("'feddyn+fedadam'", "two server optimisers", "keep one"),
    "--method fedavg+fedavg": ("'fedavg+fedavg'", "twice", "name each once"),
    "--method fedprox --server fedporx": ("no method 'fedporx'", "did you mean 'fedprox'?"),
    "--method 'fedavg(lr=1)+fedprox(mu=-1)'": (
        "2 problems",
        "fedavg: no parameter 'lr'",
        "fedprox: mu=-1",
    ),
    "--method method.py:main": ("no function 'main' in ", "method.py; ", "did you mean 'mine'?"),
    "--method absent.py:mine": ("absent.py' is not a file", "file.py:function"),
    "--method raises.py:mine": (
        "raises.py' cannot be loaded",
        "RuntimeError: kaputt",
        "fix the file",
    ),
    "--method syntax.py:mine": ("syntax.py' cannot be loaded", "SyntaxError", "fix the file"),
    "--method no.such.module:mine": (
        "'no.such.module' cannot be imported",
        "install or fix it, or give file.py:function",
    ),
    "--method :mine": ("':mine'", "file.py:function"),
    "--method method.py:number": (
        "method.py:number' returned",
        "int, not a Method",
        "fix the function",
    ),
    "--method method.py:fails": ("method.py:fails", "KeyError", "kaputt"),
    "methods fedporx": ("no method 'fedporx'", "did you mean 'fedprox'?"),
}
MODELS: Rows = {
    "--model resnt8": ("no model 'resnt8'", "did you mean 'resnet8'?", "fedloom models"),
    "--model 'mlp(width=0)'": ("model 'mlp': width=0", "at least 1"),
    "--model 'mlp(widht=3)'": ("no parameter 'widht'", "did you mean 'width'?"),
    "--model mlp+cnn": ("model: 'mlp+cnn' is not one name", "write a name, name(argument=value)"),
    "--model lstm": ("model 'lstm' takes text", "(1, 8, 8)", "choose mlp"),
    "--model lenet5": ("model 'lenet5'", "not 8x8", "choose mlp"),
    "--model 'resnet8(norm=batch)' --partition 'quantity(alpha=0.05)'": (
        "has 1 sample",
        "raise min_size",
        "norm='group'",
    ),
    "--model 'resnet8(norm=batch)' --set train.batch=1": (
        "train.batch=1",
        "raise it",
        "norm='group'",
    ),
    "--model model.py:nett": ("no function 'nett' in ", "model.py; ", "did you mean 'net'?"),
    "--model model.py:number": ("model.py:number", "int, not a Module", "fix the function"),
    "--model model.py:fails": ("model.py:fails", "KeyError", "kaputt"),
    "--model model.py:deaf": (
        "model.py:deaf' does not accept a sample",
        "(1, 8, 8)",
        "choose another model",
    ),
    "--model model.py:odd": (
        "model.py:odd' takes the parameters width",
        "write a function of (shape, classes)",
    ),
    "--model model.py:narrow": (
        "model.py:narrow' does not accept a sample",
        "(1, 8, 8)",
        "choose another model",
    ),
    "--model model.py:few": ("model.py:few", "(1, 2)", "(1, 4) is needed", "fix its last layer"),
    "models resnt": ("no model 'resnt'", "did you mean 'resnet'?"),
}
DATA: Rows = {
    "--data tinny": (
        "no data set 'tinny'",
        "did you mean 'tiny'?",
        "fedloom data add NAME --from PATH",
    ),
    "data add new --from nowhere": ("no file or folder", "nowhere", "check the path"),
    "data add new --from idx": (
        "train-images-idx3-ubyte: found 13 bytes",
        "expected 16",
        "download it again",
    ),
    "data add new --from foreign.npz": ("foreign.npz: found no readable archive", "np.savez"),
    "data add new --from pickled.npz": (
        "pickled.npz",
        "unpickling, which can run any code",
        "plain arrays",
    ),
    "data add new --from negative.npz": (
        "found label -1",
        "whole numbers from 0",
        "replace each label",
    ),
    "data add new --from halves.npz": (
        "found label 0.5",
        "whole numbers from 0",
        "sort the values into classes",
    ),
    "data add new --from short.npz": ("4 samples", "(3,)", "make them match"),
    "data add new --from unnamed.npz": ("images", "expected an array 'x'", "name the samples x"),
    "data add new --from heart.csv --option target=diseas": ("'diseas'", "did you mean 'disease'?"),
    "data add new --from heart.csv --option target": ("--option 'target'", "value"),
    "data add new --from heart.csv --option goal=disease": ("no parameter 'goal'", "target"),
    "data add new --from single.csv": ("the one class x", "at least two", "target="),
    "data add new --from empty": ("no known data format", "looked for", ".csv"),
    "data add new --from papers": ("no known data format", "papers", "looked for"),
    "data add new --from heart.csv --format cvs": ("no data format 'cvs'", "table"),
    "data add tiny --from heart.csv": (
        "data set 'tiny' already exists",
        "choose another name",
        "--replace",
    ),
    "data add ../tiny --from heart.csv": (
        "name '../tiny'",
        "letters, digits",
        "choose another name",
    ),
    "data remove fashion-mnist": ("'fashion-mnist' is built into fedloom", "choose another name"),
    "data remove tinny": ("no data set 'tinny'", "did you mean 'tiny'?"),
    "data check tinny": ("no data set 'tinny'", "did you mean 'tiny'?"),
    "data show tiny --clients 8 --png note.txt/new.png": ("note.txt/new.png", "directory"),
    "--partition dirichlt": ("no partition 'dirichlt'", "did you mean 'dirichlet'?"),
    "--partition 'dirichlet(alpha=0)'": ("alpha=0", "above 0"),
    "--partition iid+shards": (
        "data.partition: 'iid+shards' is not one name",
        "write a name, name(argument=value)",
    ),
    "--partition iid --clients 1000": (
        "1000 clients",
        "the data have 240",
        "clients or a smaller minimum",
    ),
    "--partition 'classes(classes=99)'": ("classes=99", "the 4 classes of the data", "at most 4"),
    "--partition user": (
        "the data have no user ids",
        "use another partition, such as iid",
    ),
    "--clients 0": ("clients=0", "at least 1", "'user' only"),
    "--per-round 9": ("sample.per_round=9", "the 8 clients", "lower it or raise data.clients"),
    "--per-round 0": ("per_round=0", "at least 1"),
    "--set sample.name=uniforn": ("no sampler 'uniforn'", "did you mean 'uniform'?"),
}
COMMANDS: Rows = {
    "run --out done": ("done holds a run already", "fedloom resume done", "choose another --out"),
    "run --out note.txt": ("note.txt is a file", "choose another --out"),
    "run --out papers": ("papers is not empty", "note.txt", "choose another --out"),
    "run --out note.txt/below": ("note.txt/below", "not a directory", "choose another"),
    "resume papers": ("papers is not the folder of a run", "no config.toml", "fedloom run"),
    "resume absent": ("absent is not the folder of a run", "fedloom run"),
    "resume done --client 999": ("client 999", "the 8 clients", "from 0 to 7"),
    "compare --methods fedavg,fedavg": ("--methods fedavg,fedavg", "twice", "name each once"),
    "compare --methods fedavg,fedporx": ("no method 'fedporx'", "did you mean 'fedprox'?"),
    "compare --methods ,": (
        "--methods names no method",
        "write for example --methods fedavg,fedprox",
    ),
    "compare --methods fedavg --seeds 0": ("'--seeds'", "0 is not in the range 1<=x<=1000"),
    "compare --methods fedavg --target 7": ("--target 7", "between 0 and 1", "for example 0.8"),
    "compare": ("--methods names no method", "write for example --methods fedavg,fedprox"),
    "run --round 3": ("'--round'", "'--rounds'"),
    "run --rounds three": ("'--rounds'", "'three' is not a valid integer"),
    "rum": ("'rum'", "'run'"),
    "resume": ("Missing argument 'FOLDER'", "fedloom resume -h"),
}
ROWS: Rows = SETTINGS | METHODS | MODELS | DATA | COMMANDS


@pytest.fixture(scope="module")
def shelf(home: Path) -> Path:
    """A folder with bad files and a finished run."""
    folder = home / "shelf"
    folder.mkdir()
    bad_files.write_all(folder)
    run(folder / "done", rounds=1)
    return folder


@pytest.fixture(autouse=True)
def here(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shelf)
    shutil.rmtree("new", ignore_errors=True)
    shutil.rmtree("runs", ignore_errors=True)


def rejected(*words: object) -> str:
    """The message of a command that must be rejected; it prints no result and writes nothing."""
    said = fedloom(*words, code=2)
    assert said.out == "" and ("error: " in said.flat or "─ Error ─" in said.flat)
    left = [Path("new"), Path("runs"), Path(os.environ["FEDLOOM_HOME"]) / "data" / "new"]
    assert [path for path in left if path.exists()] == []
    return said.flat


@pytest.mark.parametrize(("words", "fragments"), ROWS.items(), ids=ROWS)
def test_bad_input_is_rejected_with_a_message(words: str, fragments: tuple[str, ...]) -> None:
    flags = words.startswith("-")
    said = rejected(
        *(("run", *TINY, "--rounds", 1, "--out", "new") if flags else ()), *shlex.split(words)
    )
    assert len(fragments) >= 2
    assert [f for f in fragments if f not in said] == [], said


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_does_not_exist() -> None:
    said = rejected("run", *TINY, "--out", "new", "--device", "cuda")
    assert "device 'cuda' does not exist" in said and "choose one of: auto, cpu" in said


def test_two_processes_cannot_write_to_one_folder() -> None:
    with RunFolder.open(Path("done")):
        said = rejected("resume", "done")
    assert (
        f"done is being written by process {os.getpid()}" in said
        and "wait until it is done" in said
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission() -> None:
    Path("closed").mkdir(mode=0o500)
    said = rejected("run", *TINY, "--out", "closed/new")
    assert "closed/new: permission denied" in said and "choose another" in said


def test_a_comparison_has_the_same_settings_for_all_runs() -> None:
    """A finished run with other settings is rejected before any other run is trained."""
    words = ("compare", *TINY, "--rounds", 1, "--out", "compared")
    fedloom(*words, "--methods", "fedavg")
    said = rejected(*words, "--methods", "fedprox,fedavg", "--set", "train.lr=0.3")
    assert (
        "compared/fedavg/seed-0' holds a run with other settings" in said
        and "choose another --out" in said
    )
    assert not Path("compared/fedprox").exists()
