"""The generated parts of the pages, by name: functions from the repository's root to Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from docparts import (
    api,
    catalogue,
    claims,
    commands,
    earlier,
    measured,
    paper_scale,
    settings,
    suites,
)
from fedloom.claims.claim import PAPERS
from fedloom.claims.suites import suites as all_suites

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
        "size": measured.size,
        "peers": measured.peers,
        "deploy": measured.deploy,
        "deploy-methods": measured.deployed_methods,
        "steps": measured.steps,
        "transfers": measured.transfers,
        "results-counts": claims.overview,
        "results-headlines": claims.headlines,
        **{f"claims-{paper}": claims.paper(paper) for paper in PAPERS},
        **{f"suite-{name}": suites.suite(name) for name in all_suites()},
        "fedalign-table1": earlier.fedalign,
        "fedmlb-overview": earlier.fedmlb("overview"),
        "fedmlb-wider": earlier.fedmlb("wider"),
        "fedmlb-servers": earlier.fedmlb("servers"),
        "fedmix-cifar10": earlier.fedmix("cifar10"),
        "fedmix-cifar100": earlier.fedmix("cifar100"),
        "fedmix-handwriting": earlier.fedmix("handwriting"),
        "fedmix-shakespeare": earlier.fedmix("shakespeare"),
        "fedmix-lam": earlier.swept("lam"),
        "fedmix-size": earlier.swept("size"),
        "fedmix-share": earlier.swept("share"),
        "fedafa-table1": earlier.fedafa,
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
