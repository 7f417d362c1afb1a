"""A site that comes back during a run: does what it says of itself still fit the agreement?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedloom.core.errors import UserError
from fedloom.data.sources.errors import shortened
from fedloom.deploy.differences import other_software
from fedloom.deploy.report import SiteReport, this_software
from fedloom.deploy.terms import Agreement

REMEDY = "put the earlier data back, or start a new run"


def report_problem(agreement: Agreement, site: str, facts: Mapping[str, Any]) -> str | None:
    """Why a site cannot take part in the run now, as a phrase that follows its name, or None.

    facts: its report. The first difference is named, with both values.
    """
    try:
        report = SiteReport.from_json(site, facts)
    except UserError as error:
        return f"does not fit the agreement: {error}"
    problem = next(_problems(agreement, report), None)
    return None if problem is None else f"does not fit the agreement: {problem}"


def _problems(agreement: Agreement, report: SiteReport) -> Iterator[str]:
    yield from other_software(report, this_software())
    agreed = {client.name: client for client in agreement.clients_of(report.site).values()}
    names = [client.name for client in report.clients]
    if names != list(agreed):
        yield f"its clients are {shortened(names)}, and were {shortened(agreed)}; {REMEDY}"
        return
    for client in report.clients:
        then = agreed[client.name]
        for what in ("train", "test", "checksum"):
            was, now = getattr(then, what), getattr(client, what)
            if was != now:
                word = "checksum" if what == "checksum" else f"number of {what} samples"
                yield f"the {word} of client '{client.name}' is {now}, and was {was}; {REMEDY}"
