"""The lists of methods, models, formats, partitions, augmentations and samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from docparts.markdown import code, options, parameter_table, prose, table
from docparts.verification import UNVERIFIED, verification
from fedloom.core.learning_task import TASKS
from fedloom.core.sampler import SAMPLERS
from fedloom.data.augment import AUGMENTS
from fedloom.data.partition import GIVEN, PARTITIONS, stream
from fedloom.data.sources import SOURCES
from fedloom.methods import registry
from fedloom.models.describe import describe_models
from fedloom.models.registry import MODELS

PUBLISHED_SPLITS = (
    "Every partition also takes this parameter, which reproduces a split that its authors drew "
    "with a seed of NumPy. The generator is `numpy.random.RandomState`, because NumPy's "
    "compatibility policy has frozen its seeding and its stream."
)


def method_list(root: Path) -> str:
    """The methods, grouped by how they are verified."""
    groups: dict[str, list[str]] = {}
    for name, kinds in _verified(root).items():
        groups.setdefault(kinds, []).append(f"[{name}](docs/methods.md#{name})")
    most_first = sorted(groups.items(), key=lambda group: (-group[0].count(","), group[0]))
    rows = [[kinds, ", ".join(names)] for kinds, names in most_first]
    return table(["verified by", "methods"], rows)


def method_table(root: Path) -> str:
    """Every method with its paper and how it is verified."""
    verified = _verified(root)
    entries = [registry.entry(name) for name in registry.names()]
    rows = [[f"[{e.name}](#{e.name})", e.summary, _paper(e), verified[e.name]] for e in entries]
    return table(["method", "what it does", "paper", "verified by"], rows)


def methods(root: Path) -> str:
    """A section for each method."""
    verified = _verified(root)
    return "\n\n".join(_method(registry.entry(name), verified[name]) for name in registry.names())


def _tasks(names: list[str]) -> str:
    return "any" if len(names) == len(TASKS) else ", ".join(names)


def _method(entry: registry.Entry, verified: str) -> str:
    described = entry.describe()
    source = f"src/fedloom/methods/{entry.name.replace('-', '_')}.py"
    facts = [
        f"- Needs: {'; '.join(described['needs'])}",
        f"- Tasks: {_tasks(described['tasks'])}",
        f"- Paper: {_paper(entry)}",
        f"- Verified by: {verified}",
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


def _verified(root: Path) -> dict[str, str]:
    kinds_of = verification(root / "tests" / "methods", registry.names())
    return {name: ", ".join(kinds) or UNVERIFIED for name, kinds in kinds_of.items()}


def models(root: Path) -> str:
    """A table of all models, then a section for each."""
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
    """A section for each data format."""
    sections = []
    for name, source in SOURCES.items():
        parameters = options(source.read, ("path", "name"))
        sections += [f"### {name}", prose(source), "Recognised by:", code(source.LOOKS_FOR)]
        sections.append(parameters)
    return "\n\n".join(sections)


def partitions(root: Path) -> str:
    """A section for each partition, and one on the parameters that reproduce published ones."""
    published = f"### Published splits\n\n{PUBLISHED_SPLITS}\n\n{options(stream, GIVEN)}"
    return f"{_sections(PARTITIONS, GIVEN)}\n\n{published}"


def augmentations(root: Path) -> str:
    """A section for each augmentation."""
    return _sections(AUGMENTS)


def samplers(root: Path) -> str:
    """A section for each sampler."""
    return _sections(SAMPLERS)


def _sections(registered: Mapping[str, Callable[..., Any]], skip: Iterable[str] = ()) -> str:
    return "\n\n".join(
        f"### {name}\n\n{prose(make)}\n\n{options(make, skip)}" for name, make in registered.items()
    )
