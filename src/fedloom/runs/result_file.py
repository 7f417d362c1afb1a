"""result.json: the summary of a finished run, with a checksum and the settings it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError
from fedloom.runs.durable_files import read_if_exists, seal, unseal, write_durably
from fedloom.runs.folder_layout import FORMAT


def write_result(path: Path, summary: Mapping[str, Any], config_sha256: str) -> None:
    facts = {"format": FORMAT, "config_sha256": config_sha256, "summary": summary}
    write_durably(path, seal(facts))


def read_result(path: Path, config_sha256: str) -> dict[str, Any] | None:
    """The summary, or None if there is no such file; raises if it is not of these settings."""
    data = read_if_exists(path)
    if data is None:
        return None
    facts = unseal(data) or {}
    written_by = facts.get("format"), facts.get("config_sha256")
    summary = facts.get("summary")
    if written_by != (FORMAT, config_sha256) or not isinstance(summary, dict):
        raise RunError(
            f"{path} is damaged or belongs to other settings; "
            f"delete it, and `fedloom resume {path.parent}` writes it again"
        )
    return summary
