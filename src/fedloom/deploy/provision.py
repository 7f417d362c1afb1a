"""`fedloom deploy init`: the folder of a deployment, with certificates, keys and start kits."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedloom.core.errors import UserError
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
from fedloom.settings.config import Config


def provision(folder: Path, config: Config, sites: tuple[str, ...], address: Address) -> None:
    """Make a new deployment. It is complete or not there."""
    check_importable("cryptography")
    check_site_names(sites)
    app_files.check_deployable(config)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"'{folder}' exists already; choose another folder, since new keys would lock out "
            "the sites of an existing deployment"
        )
    try:
        _write(folder, config, sites, address)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write(folder: Path, config: Config, sites: tuple[str, ...], address: Address) -> None:
    name = folder.resolve().name
    private_folder(folder)
    server = ServerFolder(folder.resolve() / "server")
    for path in (server.path, server.path / "sites", server.app, server.flower):
        private_folder(path)
    facts = {"name": name, "address": str(address), "sites": list(sites)}
    write_facts(server.path / "deployment.toml", facts)
    write_authority_and_server(server.path, folder / "ca.key", address.host)
    text = app_files.pyproject(name, config)
    (server.app / "pyproject.toml").write_text(text, encoding="utf-8")
    for site in sites:
        _write_kit(Kit(folder.resolve() / "kits" / site), server, site, address)
    (folder / "README.md").write_text(deployment_readme(name, sites, address), encoding="utf-8")


def _write_kit(kit: Kit, server: ServerFolder, site: str, address: Address) -> None:
    private_folder(kit.path)
    write_facts(kit.path / "site.toml", {"name": site, "server": str(address)})
    shutil.copyfile(server.ca, kit.ca)
    write_node_key(kit.key, server.public_key(site), site)
    (kit.path / "README.md").write_text(kit_readme(site, address), encoding="utf-8")
