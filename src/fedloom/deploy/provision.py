"""`fedloom deploy init`: the folder of a deployment, with certificates, keys and start kits."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError, shown
from fedloom.deploy import app_files
from fedloom.deploy.certificates import write_authority_and_server, write_node_key
from fedloom.deploy.flower_extra import check_importable
from fedloom.deploy.kit_readme import deployment_readme, kit_readme
from fedloom.deploy.layout import (
    Address,
    Kit,
    ServerFolder,
    check_site_names,
    private_folder,
    write_facts,
)
from fedloom.deploy.submit import check_run_name
from fedloom.settings.config import Config, load

# What a deployment's settings must say: the sites hold the clients and their test samples.
AT_SITES = {
    ("data", "partition"): {"name": "user"},
    ("data", "clients"): 0,
    ("evaluate", "on"): "own",
}


def for_sites(config: Config) -> tuple[Config, list[str]]:
    """The settings of a simulation as those of a deployment, and what was changed for it."""
    raw, notes = config.model_dump(mode="json"), []
    for (section, name), value in AT_SITES.items():
        if name in raw[section] and raw[section][name] != value:
            notes.append(f"{section}.{name} is set to {shown(_short(value))}: sites hold the data")
            raw[section][name] = value
    return load(raw), notes


def _short(value: Any) -> Any:
    return value["name"] if isinstance(value, dict) else value


def provision(
    folder: Path,
    config: Config,
    sites: tuple[str, ...],
    address: Address,
    reader: Mapping[str, Any] | None = None,
) -> None:
    """Make a new deployment. It is complete or not there.

    reader: options for the readers of the sites' data, which each site may change.
    """
    check_importable("cryptography")
    check_site_names(sites)
    app_files.check_deployable(config)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"'{folder}' exists already; choose another folder, since new keys would lock out "
            "the sites of an existing deployment"
        )
    try:
        _write(folder, config, sites, address, reader or {})
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write(
    folder: Path,
    config: Config,
    sites: tuple[str, ...],
    address: Address,
    reader: Mapping[str, Any],
) -> None:
    name = _run_name(folder)
    private_folder(folder)
    server = ServerFolder(folder.resolve() / "server")
    kits = folder.resolve() / "kits"
    for path in (server.path, server.path / "sites", server.app, server.flower, kits):
        private_folder(path)
    facts = {"name": name, "address": str(address), "sites": list(sites)}
    write_facts(server.path / "deployment.toml", facts)
    write_authority_and_server(server.path, folder / "ca.key", address.host)
    named = config.data.model_copy(update={"name": name})  # not that of the simulation
    text = app_files.pyproject(name, config.model_copy(update={"data": named}))
    (server.app / "pyproject.toml").write_text(text, encoding="utf-8")
    for site in sites:
        own: dict[str, Any] = {"name": site, "server": str(address)}
        _write_kit(Kit(kits / site), server, {**own, "data": dict(reader)} if reader else own)
    (folder / "README.md").write_text(deployment_readme(name, sites, address), encoding="utf-8")


def _run_name(folder: Path) -> str:
    """The name of the deployment's first run: that of the folder, if it can be one."""
    name = folder.resolve().name
    try:
        check_run_name(name)
    except UserError:
        return "run"
    return name


def _write_kit(kit: Kit, server: ServerFolder, facts: dict[str, Any]) -> None:
    private_folder(kit.path)
    write_facts(kit.path / "site.toml", facts)
    shutil.copyfile(server.ca, kit.ca)
    write_node_key(kit.key, server.public_key(kit.name), kit.name)
    (kit.path / "README.md").write_text(kit_readme(kit.name, kit.server), encoding="utf-8")
