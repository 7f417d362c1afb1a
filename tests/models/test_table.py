"""The stored table of models is what the models themselves give, and reading it needs no torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedloom.core.errors import UserError
from fedloom.models import table
from fedloom.models.describe import describe_model
from fedloom.models.registry import MODELS

REMEDY = "the stored table is out of date; run: python -m fedloom.models.table"


def test_it_has_every_registered_model_in_order() -> None:
    assert table.names() == list(MODELS), REMEDY


@pytest.mark.parametrize("name", MODELS)
def test_it_equals_freshly_computed_figures(name: str) -> None:
    fresh = json.loads(json.dumps(describe_model(name)))  # as JSON has it: lists for tuples
    assert table.describe(name) == fresh, REMEDY


def test_the_list_is_every_model() -> None:
    assert table.describe_all() == [table.describe(name) for name in table.names()]


def test_an_unknown_name_is_rejected_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match=r"no model 'resnet65'; did you mean 'resnet56'\?"):
        table.describe("resnet65")


def test_reading_it_does_not_import_torch() -> None:
    code = (
        "import sys; from fedloom.models import table; "
        "assert len(table.describe_all()) == len(table.names()) > 10; "
        "table.describe('resnet56'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_rewriting_gives_the_stored_file(tmp_path: Path) -> None:
    table.rewrite(tmp_path / "table.json")
    stored = table.PATH.read_text(encoding="utf-8")
    assert (tmp_path / "table.json").read_text(encoding="utf-8") == stored, REMEDY
