"""What lies where in a deployment, at the server and in a site's kit.

DIR/                  made by `fedloom deploy init`, for its owner only
  README.md           what to do next
  ca.key              signs the server's certificate; keep it away from the server
  server/             stays at the server: `fedloom deploy server DIR`
    deployment.toml   name, address and sites
    ca.crt  server.crt  server.key
    sites/NAME.pub    the public key of each site
    app/              the Flower app, which is sent to the sites: no secrets
    flower/           Flower's own folder (FLWR_HOME), its database and the roster
    logs/  runs/
  kits/NAME/          goes to the site: `fedloom deploy node KIT --data PATH`
    site.toml         name of the site, address of the server
    ca.crt  node.key
    README.md
    state/            made at the site: memories, secrets, socket, logs; never leaves it
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError, shown, shown_text
from fedloom.runs.durable_files import PRIVATE_FOLDER
from fedloom.settings import toml


@dataclass(frozen=True)
class Address:
    """Where sites reach the server.

    >>> Address.parse("fl.example.org:9092").host
    'fl.example.org'
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """HOST:PORT; an IPv6 address stands in brackets."""
        host, colon, port = text.rpartition(":")
        bare = host.strip("[]")
        usable = bool(bare) and (":" not in bare or host.startswith("["))
        if not (colon and usable and port.isdecimal() and 0 < int(port) < 2**16):
            raise UserError(
                f"address '{shown_text(text)}' is not of the form HOST:PORT; "
                "for example fl.example.org:9092, or 127.0.0.1:9092 to try it on one machine"
            )
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ServerFolder:
    """The server's part of a deployment."""

    path: Path

    @classmethod
    def find(cls, path: Path) -> ServerFolder:
        """From the deployment's folder or from its server folder alone, wherever that was put."""
        for folder in (path / "server", path):
            if (folder / "deployment.toml").is_file():
                return cls(folder.resolve())
        raise UserError(
            f"'{path}' is not a deployment: it has no server/deployment.toml; make one with: "
            f"fedloom deploy init {path} --config SETTINGS.toml --sites a,b,c"
        )

    @property
    def facts(self) -> dict[str, Any]:
        return read_facts(self.path / "deployment.toml", ("name", "address", "sites"))

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    @property
    def address(self) -> Address:
        return Address.parse(str(self.facts["address"]))

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the sites; their clients are numbered in this order."""
        return tuple(self.facts["sites"])

    @property
    def ca(self) -> Path:
        return self.path / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.path / "server.crt"

    @property
    def key(self) -> Path:
        return self.path / "server.key"

    def public_key(self, site: str) -> Path:
        return self.path / "sites" / f"{site}.pub"

    @property
    def app(self) -> Path:
        return self.path / "app"

    @property
    def flower(self) -> Path:
        return self.path / "flower"

    @property
    def database(self) -> Path:
        return self.flower / "superlink.db"

    @property
    def roster(self) -> Path:
        """Which Flower node is which site, written when the SuperLink starts."""
        return self.flower / "roster.json"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def runs(self) -> Path:
        return self.path / "runs"


@dataclass(frozen=True)
class Kit:
    """A site's start kit, and the site's own state beside it."""

    path: Path

    @classmethod
    def find(cls, path: Path) -> Kit:
        if not (path / "site.toml").is_file():
            raise UserError(
                f"'{path}' is not a start kit: it has no site.toml; "
                "give the folder kits/NAME of a deployment, as you got it from the server's admin"
            )
        return cls(path.resolve())

    @property
    def facts(self) -> dict[str, Any]:
        return read_facts(self.path / "site.toml", ("name", "server"))

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    @property
    def server(self) -> Address:
        return Address.parse(str(self.facts["server"]))

    @property
    def ca(self) -> Path:
        return self.path / "ca.crt"

    @property
    def key(self) -> Path:
        return self.path / "node.key"

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def flower(self) -> Path:
        return self.state / "flower"

    @property
    def logs(self) -> Path:
        return self.state / "logs"


def read_facts(path: Path, needed: tuple[str, ...]) -> dict[str, Any]:
    """The table of a small TOML file that `init` wrote; raises if it was damaged."""
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' is not TOML: {shown_text(str(error))}; copy it again") from None
    if missing := [name for name in needed if name not in facts]:
        raise UserError(f"'{path}' lacks {', '.join(missing)}; copy it again")
    return facts


def write_facts(path: Path, facts: dict[str, Any]) -> None:
    """Write a small TOML file."""
    path.write_text(toml.dumps(facts), encoding="utf-8")


def private_folder(path: Path) -> Path:
    """A folder for its owner only, with its parents; an existing one is closed to others."""
    path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    path.chmod(PRIVATE_FOLDER)
    return path


def check_private(path: Path) -> None:
    """Raise if a key is missing, or can be read by others, as ssh does."""
    if not path.is_file():
        raise UserError(f"'{path}' does not exist; copy it again from the deployment")
    mode = path.stat().st_mode & 0o777
    if os.name == "posix" and mode & 0o077:
        raise UserError(
            f"'{path}' can be read by others (mode {mode:04o}); close it with: chmod 600 {path}"
        )


def check_site_names(sites: tuple[str, ...]) -> None:
    """Raise for names that cannot be folders, or that are not unique."""
    if not sites:
        raise UserError("--sites names no site; give their names, as in --sites north,south,west")
    for name in sites:
        plain = name.replace("-", "").replace("_", "")
        if not (plain.isalnum() and name.isascii() and name[0].isalpha() and len(name) <= 40):
            raise UserError(
                f"site {shown(name)} cannot be the name of a folder; begin with a letter, then "
                "letters, digits, - and _, at most 40 characters"
            )
    lowered = [name.lower() for name in sites]
    if twice := [name for name in sites if lowered.count(name.lower()) > 1]:
        raise UserError(f"site '{twice[0]}' is named twice in --sites; name every site once")
