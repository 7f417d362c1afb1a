"""What a run remembers of its logs, so that a resumed run continues them: RUN/trackers.json.

A run folder may come from someone else, so names in this file are checked before they are used.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError
from fedloom.runs.durable_files import read_if_exists, write_durably

FILE = "trackers.json"
_NAME = re.compile(r"[A-Za-z0-9_+=,-][\w.+=,-]{0,199}")


class LogMemory:
    """The entry of one log: its name or id in the tracker, and how many rounds it has.

    tracker, where: which log. Without a folder nothing is remembered.
    """

    def __init__(self, folder: Path | None, tracker: str, where: str) -> None:
        self._file = None if folder is None else folder / FILE
        self._key = f"{tracker} {where}"
        entry = self._entries().get(self._key, {"name": None, "rounds": 0})
        self.name: str | None = entry["name"]
        self.rounds: int = entry["rounds"]

    def keep(self, name: str, rounds: int = 0) -> None:
        """Remember the name of the log, and that it has this many rounds."""
        self.name, self.rounds = name, rounds
        if self._file is not None:
            entries = {**self._entries(), self._key: {"name": name, "rounds": rounds}}
            write_durably(self._file, json.dumps(entries, indent=1).encode())

    def _entries(self) -> dict[str, Any]:
        data = None if self._file is None else read_if_exists(self._file)
        if data is None:
            return {}
        try:
            entries = json.loads(data)
        except (ValueError, RecursionError):
            entries = None
        if not isinstance(entries, dict) or not all(map(_is_entry, entries.values())):
            raise RunError(f"{self._file} is damaged; delete it, and a new log is begun")
        return entries


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != {"name", "rounds"}:
        return False
    name, rounds = entry["name"], entry["rounds"]
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and type(rounds) is int
