"""Code that the settings of a run name: a site runs its own copy of it, and only what it trusts.

The settings come from the server, and name files of the server's machine. A site lists its own
copies under `trust` in its site.toml. A name in the settings stands for the trusted file of the
same name with the same function, if its content is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedloom.core import user_code
from fedloom.core.errors import UserError
from fedloom.settings.config import Config, load


def trusted_config(
    raw: Mapping[str, Any], trust: Sequence[str], code: Mapping[str, str], site: str
) -> Config:
    """The settings with the site's own copies of the code that they name.

    code: sha256 of the server's files, by file name. Raises if the site does not trust all of it.
    """
    named = load(raw, "the settings of the run").references
    local = {reference: _trusted_copy(reference, trust, site) for reference in named}
    config = load(_replaced(raw, local), "the settings of the run")
    user_code.allow(local.values())
    for place, checksum in config.code().items():
        expected = code.get(Path(place).name)
        if expected != checksum:
            raise UserError(
                f"site '{site}': the file {place} has the sha256 {checksum[:12]}, and that of the "
                f"server {(expected or 'none')[:12]}; copy the same version to both"
            )
    return config


def _trusted_copy(reference: str, trust: Sequence[str], site: str) -> str:
    wanted = user_code.short_reference(reference)
    for candidate in trust:
        if user_code.short_reference(candidate) == wanted:
            return user_code.absolute_reference(candidate)
    raise UserError(
        f"site '{site}': the settings name the code '{wanted}', which this site does not trust; "
        f"read that code, and if you trust it copy it to the site and add "
        f'trust = ["/PATH/{wanted}"] to its site.toml (it lists '
        f"{', '.join(map(user_code.short_reference, trust)) or 'nothing'})"
    )


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    """Settings in which every reference is replaced, also in the names of tables."""
    if isinstance(value, Mapping):
        return {_replaced(key, names): _replaced(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, names) for item in value]
    if isinstance(value, str):
        for reference, local in names.items():
            value = value.replace(reference, local)
    return value
