"""What there is: methods, models, formats, partitions, augmentations, samplers, and what a round costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from docparts.markdown import code, options, parameter_table, prose, table
from docparts.proofs import NONE, proofs
from fedloom.core.sampler import SAMPLERS
from fedloom.data.augment import AUGMENTS
from fedloom.data.partition import GIVEN, PARTITIONS, stream
from fedloom.data.sources import SOURCES
from fedloom.methods import registry
from fedloom.models.describe import describe_models
from fedloom.models.registry import MODELS


def method_list(root: Path) -> str:
    """The methods by what is proved of them."""
    groups: dict[str, list[str]] = {}
    for name, kinds in _proved(root).items():
        groups.setdefault(kinds, []).append(f"[{name}](docs/methods.md#{name})")
    most_first = sorted(groups.items(), key=lambda group: (-group[0].count(","), group[0]))
    return table(
        ["proved by", "methods"], [[kinds, ", ".join(names)] for kinds, names in most_first]
    )


def method_table(root: Path) -> str:
    """Every method with its paper and what is proved of it."""
    proved = _proved(root)
    entries = [registry.entry(name) for name in registry.names()]
    rows = [[f"[{e.name}](#{e.name})", e.summary, _paper(e), proved[e.name]] for e in entries]
    return table(["method", "what it does", "paper", "proved by"], rows)


def methods(root: Path) -> str:
    """A section for every method."""
    proved = _proved(root)
    return "\n\n".join(_method(registry.entry(name), proved[name]) for name in registry.names())


def _method(entry: registry.Entry, proved: str) -> str:
    described = entry.describe()
    source = f"src/fedloom/methods/{entry.name.replace('-', '_')}.py"
    facts = [
        f"- Needs: {'; '.join(described['needs'])}",
        f"- Paper: {_paper(entry)}",
        f"- Proved by: {proved}",
        f"- Code: [{source}](../{source})",
    ]
    return "\n\n".join(
        [
            f"## {entry.name}",
            code(entry.text),
            parameter_table(described["parameters"]),
            "\n".join(facts),
        ]
    )


def _paper(entry: registry.Entry) -> str:
    return f"[{entry.paper}]({entry.link})" if entry.link else entry.paper


def _proved(root: Path) -> dict[str, str]:
    found = proofs(root / "tests" / "methods", registry.names())
    return {name: ", ".join(kinds) or NONE for name, kinds in found.items()}


def models(root: Path) -> str:
    """All models side by side, then a section for each."""
    described = describe_models()
    rows = [
        [
            f"[{m['name']}](#{m['name']})",
            m["input"],
            str(len(m["blocks"])),
            f"{m['parameters']:,}",
            f"{m['macs']:,}",
        ]
        for m in described
    ]
    return "\n\n".join(
        [
            table(["model", "counted on", "blocks", "parameters", "MACs"], rows),
            *map(_model, described),
        ]
    )


def _model(model: Mapping[str, Any]) -> str:
    rows = [
        [
            f"`{b['name']}`",
            " x ".join(map(str, b["output"])),
            f"{b['parameters']:,}",
            f"{b['macs']:,}",
        ]
        for b in model["blocks"]
    ]
    blocks = table(["block", "output", "parameters", "MACs"], rows)
    about = prose(MODELS[model["name"]])
    return "\n\n".join(
        [
            f"## {model['name']}",
            about,
            f"On {model['input']}:",
            blocks,
            parameter_table(model["arguments"]),
        ]
    )


def formats(root: Path) -> str:
    """A section for every reader."""
    return "\n\n".join(
        f"### {name}\n\n{prose(source)}\n\nFound by:\n\n{code(source.LOOKS_FOR)}\n\n{options(source.read, ('path', 'name'))}"
        for name, source in SOURCES.items()
    )


def partitions(root: Path) -> str:
    """A section for every partition, and what all of them take."""
    return f"{_sections(PARTITIONS, GIVEN)}\n\n### Published splits\n\n{prose(stream)}\n\n{options(stream, GIVEN)}"


def augmentations(root: Path) -> str:
    """A section for every augmentation."""
    return _sections(AUGMENTS)


def samplers(root: Path) -> str:
    """A section for every sampler."""
    return _sections(SAMPLERS)


def _sections(known: Mapping[str, Callable[..., Any]], skip: Iterable[str] = ()) -> str:
    return "\n\n".join(
        f"### {name}\n\n{prose(make)}\n\n{options(make, skip)}" for name, make in known.items()
    )
