"""The secret of a site: made at the site, kept for its owner only, never sent.

Noise that hides data is drawn with it (Job.noise_key), so that the server, which knows the seed of
the run, cannot compute the noise and subtract it.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from fedloom.core.errors import UserError
from fedloom.runs.durable_files import read_if_exists, write_durably

BYTES = 32
_FORM = re.compile(rb"[0-9a-f]{%d}\n" % (2 * BYTES))


def site_secret(path: Path) -> str:
    """The secret in this file; a new one if there is none."""
    content = read_if_exists(path)
    if content is None:
        content = f"{secrets.token_hex(BYTES)}\n".encode()
        write_durably(path, content)
    if _FORM.fullmatch(content) is None:
        raise UserError(
            f"{path} does not hold a secret of fedloom; restore it from a backup, or delete it: "
            "a new one is made, with which averages of data may be sent a second time"
        )
    _check_private(path)
    return content.decode().strip()


def _check_private(path: Path) -> None:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise UserError(
            f"{path} can be read by others (mode {mode:04o}); close it with: chmod 600 {path}"
        )
