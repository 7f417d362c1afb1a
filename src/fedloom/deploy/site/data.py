"""A site's own data, read by the package's readers.

Every user of the data (every file, if a folder has one per client) is a client; data without users
are one client named like the site. The test split is the one that `fedloom data add` would make of
the site's files alone: a site knows nothing of the others' samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.data.sources import read_unscaled
from fedloom.data.sources.build import natural_order
from fedloom.data.sources.frames import Frame
from fedloom.data.sources.unscaled import Unscaled


@dataclass(frozen=True)
class Source:
    """Where a site's data are, and the options of their reader."""

    path: Path
    format: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteData:
    """The samples of a site as its files hold them.

    users: the client of each sample. clients: their names, in natural order; those of users who
    have test samples only are not among them.
    """

    site: str
    samples: Unscaled
    users: np.ndarray
    clients: tuple[str, ...]

    def rows(self, client: str, test: bool) -> np.ndarray:
        """The positions of a client's training or test samples."""
        return np.flatnonzero((self.users == client) & (self.samples.test == test))

    @property
    def frame(self) -> Frame:
        """The columns of a table."""
        assert isinstance(self.samples.x, dict)
        return self.samples.x

    @property
    def train(self) -> np.ndarray:
        """The mask of the training rows."""
        return ~self.samples.test


def read_site(site: str, source: Source) -> SiteData:
    """Read the data of a site."""
    samples = read_unscaled(source.path, source.format, **source.options)
    users = np.full(len(samples.y), site) if samples.users is None else samples.users
    names = sorted(np.unique(users[~samples.test]).tolist(), key=natural_order)
    return SiteData(site, samples, users, tuple(names))
