"""The generated parts of the pages, by name: functions from the repository's root to Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from docparts import api, catalogue, commands, measured, paper_scale, results, settings

BLOCKS: Mapping[str, Callable[[Path], str]] = MappingProxyType(
    {
        "method-list": catalogue.method_list,
        "method-table": catalogue.method_table,
        "methods": catalogue.methods,
        "overhead": measured.overhead,
        "engines": measured.engines,
        "fixed": measured.fixed,
        "growth": measured.growth,
        "crowd": measured.crowd,
        "crowd-own": measured.crowd_own,
        "peers": measured.peers,
        "steps": measured.steps,
        "fedalign-table1": results.fedalign,
        "fedmlb-overview": results.fedmlb("overview"),
        "fedmlb-wider": results.fedmlb("wider"),
        "fedmlb-servers": results.fedmlb("servers"),
        "fedmix-cifar10": results.fedmix("cifar10"),
        "fedmix-cifar100": results.fedmix("cifar100"),
        "fedmix-handwriting": results.fedmix("handwriting"),
        "fedmix-shakespeare": results.fedmix("shakespeare"),
        "fedmix-lam": results.swept("lam"),
        "fedmix-size": results.swept("size"),
        "fedmix-share": results.swept("share"),
        "fedafa-table1": results.fedafa,
        "paper-scale-rates": paper_scale.rates,
        "paper-scale-work": paper_scale.work,
        "paper-scale-commands": paper_scale.commands,
        "models": catalogue.models,
        "formats": catalogue.formats,
        "partitions": catalogue.partitions,
        "augmentations": catalogue.augmentations,
        "samplers": catalogue.samplers,
        "api-names": api.api_names,
        "api-experiments": api.api("experiments"),
        "api-records": api.api("records"),
        "api-blocks": api.api("blocks"),
        "api-modules": api.api("modules"),
        "commands": commands.commands,
        "settings": settings.settings,
        "defaults": settings.defaults,
        "presets": settings.presets,
    }
)
