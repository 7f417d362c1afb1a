"""Which files count as the user's code, and when a checksum changes."""

import sys
from pathlib import Path

import pytest

from fedloom.core import source_files
from fedloom.core.source_files import local_imports, own_source_sha256
from fedloom.core.user_code import allow, checksums


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(folder: Path, files: list[Path]) -> list[str]:
    return [str(file.relative_to(folder.resolve())) for file in files]


def test_modules_next_to_a_file_are_followed(tmp_path: Path) -> None:
    write(
        tmp_path,
        own="import torch, json, fedloom\nfrom parts import wide\ndef f():\n    import late\n",
        parts="import numpy\nimport deeper\n",
        deeper="import own, parts  # a circle\n",
        late="",
        unused="",
    )
    found = local_imports(tmp_path / "own.py")
    assert names(tmp_path, found) == ["deeper.py", "late.py", "parts.py"]


def test_packages_and_relative_imports_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kit"
    folder.mkdir()
    (folder / "__init__.py").write_text("from . import base\n")
    write(folder, base="", model="from .sub.layer import Layer\nfrom .base import x\n", other="")
    (folder / "sub").mkdir()
    (folder / "sub" / "__init__.py").write_text("from .. import other\n")
    write(folder, sub__layer="")
    monkeypatch.syspath_prepend(str(tmp_path))
    expected = ["__init__.py", "base.py", "other.py", "sub/__init__.py", "sub/layer.py"]
    assert names(folder, local_imports(folder / "model.py", "kit.model")) == expected
    assert "kit" not in sys.modules  # nothing was imported to find out
    write(tmp_path, own="from kit.model import Layer\n")
    found = names(folder, local_imports(tmp_path / "own.py"))
    assert found == sorted([*expected, "model.py"])


@pytest.mark.parametrize(
    "text", ["def (", "import not_there\n", "\0", "from . import x\n", "from ... import x\n"]
)
def test_files_that_cannot_be_read_or_imported_are_left_to_the_import(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "own.py").write_text(text)
    assert local_imports(tmp_path / "own.py") == []


def test_checksums_cover_what_a_file_imports(tmp_path: Path) -> None:
    write(tmp_path, own="import parts\n", parts="width = 4\n")
    reference, parts = f"{tmp_path / 'own.py'}:model", str((tmp_path / "parts.py").resolve())
    gone = f"{tmp_path / 'gone.py'}:model"
    allow([reference, gone])
    before = checksums([reference, "fedavg"])
    assert list(before) == [str(tmp_path / "own.py"), parts]
    write(tmp_path, parts="width = 5\n")
    after = checksums([reference])
    assert [place for place in before if before[place] != after[place]] == [parts]
    assert checksums([gone]) == {}


def test_the_checksum_of_fedloom_covers_names_and_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = own_source_sha256()
    assert own_source_sha256.__wrapped__() == real
    monkeypatch.setattr(source_files, "PACKAGE", tmp_path)
    seen = set()
    for files in ({"a": "1"}, {"a": "2"}, {"b": "2"}, {"sub__b": "2"}):
        for file in tmp_path.rglob("*.py"):
            file.unlink()
        write(tmp_path, **files)
        seen.add(own_source_sha256.__wrapped__())
    assert len(seen) == 4
