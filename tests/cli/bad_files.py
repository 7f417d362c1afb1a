"""Files with one defect each, which commands must reject."""

import struct
from pathlib import Path

import numpy as np

TEXTS = {
    "deep.toml": "a = " + "[" * 3000 + "]" * 3000,
    "digits.toml": f"rounds = {'9' * 5000}",
    "date.toml": "rounds = 1979-05-27",
    "typo.toml": "[train]\nlerning_rate = 0.1\nmomentun = 0.9\n",
    "type.toml": 'rounds = "ten"\n',
    "range.toml": "[train]\nmomentum = 1.5\n",
    "broken.toml": "[train\nlr = 0.1\n",
    "nesterov.toml": "[train]\nnesterov = true\n",
    "many.toml": "rounds = 0\nroundz = 3\n\n[train]\nlr = -1\n\n[data]\nclients = -4\n",
    "stray.toml": '[method]\nname = "fedprox"\n\n[method.fedprx]\nmu = 1\n',
    "inner.toml": '[method]\nname = "fedprox"\nmu = 1\n',
    "note.txt": "not a data set\n",
    "papers/note.txt": "not a data set either\n",
    "heart.csv": "age,pulse,disease\n"
    + "".join(f"{40 + i},{60 + i},{'yes' if i % 2 else 'no'}\n" for i in range(12)),
    "single.csv": "age,label\n1,x\n2,x\n3,x\n",
    "raises.py": "raise RuntimeError('kaputt')\n",
    "syntax.py": "def mine(:\n",
    "method.py": """from fedloom.core.method import Method

def mine():
    return Method("mine")

def number():
    return 3

def fails():
    raise KeyError("kaputt")
""",
    "model.py": """from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

def number(shape, classes):
    return 3

def fails(shape, classes):
    raise KeyError("kaputt")

def deaf():
    return nn.Linear(64, 4)

def odd(width):
    return nn.Linear(width, 4)

def narrow(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(63, classes))

def few(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
""",
}


def write_all(folder: Path) -> None:
    """Write all of them into a folder."""
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "binary.toml").write_bytes(bytes(range(256)))
    (folder / "foreign.npz").write_bytes(b"GIF89a, and so on")
    (folder / "empty").mkdir()
    (folder / "loop.py").symlink_to("loop.py")
    _write_arrays(folder)
    _write_idx(folder / "idx")


def _write_arrays(folder: Path) -> None:
    x = np.zeros((4, 3), np.float32)
    np.savez(folder / "pickled.npz", x=np.array([{}, {}], dtype=object), y=np.array([0, 1]))
    np.savez(folder / "negative.npz", x=x, y=np.array([0, 1, -1, 0]))
    np.savez(folder / "halves.npz", x=x, y=np.array([0, 1, 0.5, 0]))
    np.savez(folder / "short.npz", x=x, y=np.array([0, 1, 0]))
    np.savez(folder / "unnamed.npz", images=x, y=np.array([0, 1, 0, 1]))


def _write_idx(folder: Path) -> None:
    """The header says four images; the last one is truncated."""
    folder.mkdir()
    for prefix in ("train", "t10k"):
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(
            struct.pack(">4I", 0x803, 4, 2, 2) + bytes(13)
        )
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2I", 0x801, 4) + bytes([0, 1, 0, 1])
        )
