"""Every setting and parameter has a description."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from docparts.settings import tables
from reading import ROOT

from fedloom.core.sampler import SAMPLERS
from fedloom.core.spec import parameters
from fedloom.data.augment import AUGMENTS
from fedloom.data.partition import GIVEN, PARTITIONS, stream
from fedloom.data.sources import SOURCES
from fedloom.methods import registry
from fedloom.models.registry import MODELS
from fedloom.settings import presets
from fedloom.settings.config import Config
from fedloom.settings.fields import Settings

FILLED_IN = GIVEN | {"shape", "classes", "path", "key"}
REGISTERED: dict[str, Callable[..., Any]] = {
    **{f"method {name}": registry.entry(name).make for name in registry.names()},
    **{f"model {name}": make for name, make in MODELS.items()},
    **{f"partition {name}": make for name, make in PARTITIONS.items()},
    **{f"augmentation {name}": make for name, make in AUGMENTS.items()},
    **{f"sampler {name}": make for name, make in SAMPLERS.items()},
    **{f"format {name}": source.read for name, source in SOURCES.items()},
    "published splits": stream,
}


@pytest.mark.parametrize("make", REGISTERED.values(), ids=REGISTERED)
def test_every_parameter_has_a_meaning_and_every_function_a_docstring(
    make: Callable[..., Any],
) -> None:
    own = {n: p for n, p in parameters(make).items() if n not in FILLED_IN or p.about.meaning}
    assert [name for name, p in own.items() if not p.about.meaning.strip()] == []
    assert make.__doc__ or make.__module__.startswith(
        "fedloom.methods."
    )  # a method is documented in its module


@pytest.mark.parametrize("name", registry.names())
def test_every_method_says_what_it_is_and_where_it_is_from(name: str) -> None:
    entry = registry.entry(name)
    assert entry.summary
    assert entry.paper
    assert not entry.link or entry.link.startswith("https://")


def plain_settings() -> Iterator[tuple[str, Any]]:
    for path, model in tables(Config):
        for name, field in model.model_fields.items():
            if not (isinstance(field.annotation, type) and issubclass(field.annotation, Settings)):
                yield f"{path}.{name}".strip("."), field


def test_every_setting_has_a_meaning() -> None:
    found = dict(plain_settings())
    assert {"seed", "data.partition", "train.schedule.kind"} <= found.keys()
    assert [name for name, field in found.items() if not field.description] == []


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_partition_has_its_formula(name: str) -> None:
    assert f"\n| `{name}` | " in (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_says_how_it_is_run(name: str) -> None:
    assert "fedloom " in presets.preset(name).about
