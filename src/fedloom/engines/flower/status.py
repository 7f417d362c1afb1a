"""What the server knows of its sites, for `fedloom deploy status`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class SiteStatus:
    """connected    whether the site could be reached when it was last looked for.
    last_seen    when its last valid reply came, in seconds since 1970; None: never.
    last_round   the last round, counted from 1, in which it answered.
    problem      the last thing that went wrong and was not made up for by a later answer.
    """

    connected: bool = False
    last_seen: float | None = None
    last_round: int | None = None
    problem: str | None = None


Statuses = Mapping[str, SiteStatus]


class StatusBoard:
    """The status of every site. on_change: called with all of them when one has changed."""

    def __init__(
        self,
        sites: Iterable[str],
        on_change: Callable[[Statuses], object] = lambda statuses: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.statuses = {site: SiteStatus() for site in sites}
        self.on_change, self.now = on_change, now

    def connected(self, names: Collection[str]) -> None:
        """These sites can be reached, and no others."""
        for site in self.statuses:
            self._set(site, connected=site in names)

    def replied(self, site: str) -> None:
        """A valid reply came from this site."""
        self._set(site, connected=True, last_seen=self.now())

    def answered(self, site: str, round: int) -> None:
        """The site has done its work in this round."""
        self._set(site, last_round=round + 1, problem=None)

    def failed(self, site: str, problem: str) -> None:
        """Something went wrong."""
        self._set(site, problem=problem)

    def as_json(self) -> dict[str, dict[str, Any]]:
        """All of them by site, for a file."""
        return {site: asdict(status) for site, status in self.statuses.items()}

    def _set(self, site: str, **changes: Any) -> None:
        before = self.statuses.get(site, SiteStatus())
        after = replace(before, **changes)
        if after != before:
            self.statuses[site] = after
            self.on_change(dict(self.statuses))
