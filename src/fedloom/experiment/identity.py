"""What a run depends on besides its settings, and whether it is still the same.

It is an error if the data are not those of the run. Any other change, such as of the user's code
or of a version, is reported and recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.identity import DataIdentity, RunIdentity, UsedData
from fedloom.data.dataset import Dataset
from fedloom.data.identity import data_identity, partition_sha256
from fedloom.experiment.build import load_data, named_data, partition_rows
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import Config

REMEDY = "put the earlier data back, or start a new run"


def used_data(whole: Dataset, rows: Sequence[np.ndarray]) -> UsedData:
    """The data of a run: the whole set, before the settings take a part of it, and the rows of
    every client."""
    return UsedData(whole.name, data_identity(whole), partition_sha256(rows))


def stored_identity(path: Path) -> RunIdentity | None:
    """What the run in a folder depends on; None if it has no checkpoint yet."""
    with RunFolder.read_only(path) as folder:
        return folder.identity()


def check_same_data(
    place: str, recorded: RunIdentity | None, now: UsedData | None, remedy: str = REMEDY
) -> None:
    """Raise if a run was made with other data. place: the run, as the message names it."""
    then = None if recorded is None else recorded.data
    if then is None or now is None:
        return
    if differing := then.differences(now):
        raise UserError(
            f"'{place}' was made with data {then}, and the data now are {now}: "
            f"{' and '.join(differing)} differ; {remedy}"
        )


def check_same_content(
    place: str, recorded: RunIdentity | None, whole: Dataset, remedy: str = REMEDY
) -> None:
    """As `check_same_data`, where the split among clients does not matter."""
    if recorded is not None and recorded.data is not None:
        now = UsedData(whole.name, data_identity(whole), recorded.data.partition)
        check_same_data(place, recorded, now, remedy)


class CurrentData:
    """The data that settings name, as they are now.

    A data set is read once as long as the settings name the same one.
    """

    def __init__(self) -> None:
        self._whole: Dataset | None = None
        self._content: DataIdentity | None = None
        self._used: dict[str, UsedData] = {}

    def used_by(self, config: Config) -> UsedData:
        """The data of a run with these settings."""
        label = f"{config.seed} {config.data.model_dump_json()}"
        if label not in self._used:
            whole, content = self._read(config.data.name)
            rows = partition_rows(config, load_data(config, whole))
            self._used[label] = UsedData(whole.name, content, partition_sha256(rows))
        return self._used[label]

    def _read(self, name: str) -> tuple[Dataset, DataIdentity]:
        if self._whole is None or self._content is None or self._whole.name != name:
            self._whole = named_data(name)
            self._content = data_identity(self._whole)
        return self._whole, self._content
