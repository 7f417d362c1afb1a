"""From the reports of all sites to one agreement, or to a message that names every difference.

Class names are given, or the sorted union of those of the sites. Constants are given, or computed
from counts, sums and sums of squares of the sites (moments.py); no row of anybody's data is needed.
They are those of the training rows of all sites together, with two exceptions, which sums cannot
tell: a missing number takes the mean instead of the median, and the positions in a list of more
than 20 categories are scaled as if all categories were equally frequent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedloom.core.errors import UserError, raise_all
from fedloom.data.sources.column_plan import MAX_ONE_HOT, ColumnPlan, Scale
from fedloom.deploy.differences import agreed_classes, at_all_sites, differences
from fedloom.deploy.given import NOTHING_GIVEN, Given
from fedloom.deploy.moments import filled, merged
from fedloom.deploy.report import EMPTY, NUMBERS, ClientReport, SiteReport, this_software
from fedloom.deploy.terms import AgreedClient, Agreement, check_run_id
from fedloom.settings.config import Config

__all__ = ["Agreement", "SiteReport", "agree"]

_BYTES = "uint8"


def agree(
    config: Config, reports: Sequence[SiteReport], run: str, given: Given = NOTHING_GIVEN
) -> Agreement:
    """What all parties of a run go by. reports: in the order of the deployment's sites.

    Raises one UserError with every difference: the site, the field, and both values.
    """
    check_run_id(run)
    raise_all(_settings_problems(config, reports), "settings of a deployment")
    raise_all(differences(reports, given), "the sites do not agree")
    columns = tuple(_plan(column.name, reports, given) for column in reports[0].columns)
    mean, std = _constants(config, reports)
    classes = agreed_classes(reports, given)
    first = reports[0]
    return Agreement(
        protocol=this_software().protocol,
        run=run,
        settings=config.text(),
        kind=first.kind,
        shape=(sum(len(plan.inputs) for plan in columns),) if columns else first.shape,
        dtype=first.dtype,
        classes=classes,
        mean=mean,
        std=std,
        columns=columns,
        clients=tuple(
            _client(report, client, classes) for report in reports for client in report.clients
        ),
        code={Path(place).name: checksum for place, checksum in config.code().items()},
    )


def _client(report: SiteReport, client: ClientReport, classes: Sequence[str]) -> AgreedClient:
    counts = None
    if client.class_counts is not None:
        by_name = dict(zip(report.classes, client.class_counts, strict=True))
        counts = tuple(by_name.get(name, 0) for name in classes)
    return AgreedClient(
        report.site, client.name, client.train, client.test, client.checksum, counts
    )


# ------------------------------------------------------------------ settings


def _settings_problems(config: Config, reports: Sequence[SiteReport]) -> Iterator[str]:
    """Settings that choose among samples, which only a place that has all of them can do."""
    data = config.data
    whole = {"classes": None, "per_class": None, "pixels": None, "longtail": 1, "validation": 0}
    for name, unused in whole.items():
        if getattr(data, name) != unused:
            yield (
                f"data.{name}={getattr(data, name)} takes a part of the data, and every site uses "
                "all of its own; leave it out"
            )
    if data.partition.name != "user" or data.partition.args.get("min_size", 1) != 1:
        yield (
            f"data.partition='{data.partition.name}' splits data among clients, and the sites "
            "hold their own clients; set data.partition='user'"
        )
    if config.evaluate.metrics or config.task != "classification":
        yield (
            f"task='{config.task}' with evaluate.metrics={list(config.evaluate.metrics or ())} "
            "needs predictions and targets of single samples, which do not leave a site; "
            "deploy task='classification' without evaluate.metrics"
        )
    clients = sum(len(report.clients) for report in reports)
    if data.clients not in (0, clients):
        yield f"data.clients={data.clients}, and the sites have {clients}; set data.clients=0"


# ------------------------------------------------------------------ columns


def _plan(name: str, reports: Sequence[SiteReport], given: Given) -> ColumnPlan:
    """How a column is encoded everywhere."""
    columns = [column for _, column in at_all_sites(name, reports)]
    has_missing = any(column.missing for column in columns)
    if name in given.scales:
        return ColumnPlan(name, None, given.scales[name], has_missing)
    if all(column.holds in (NUMBERS, EMPTY) for column in columns):
        rows = sum(client.train for report in reports for client in report.clients)
        moments = filled(merged([c.moments for c in columns if c.moments is not None]), rows)
        scale = Scale(moments.mean, moments.mean, moments.std)
        return ColumnPlan(name, None, scale, has_missing)
    union = sorted({level for column in columns for level in column.categories or ()})
    levels = given.categories.get(name, tuple(union))
    if len(levels) <= MAX_ONE_HOT:
        return ColumnPlan(name, levels, None, has_missing)
    # a value of the test rows that is no category has no position, and is marked as missing
    middle, spread = (len(levels) - 1) / 2, math.sqrt((len(levels) ** 2 - 1) / 12)
    return ColumnPlan(name, levels, Scale(middle, middle, spread), True)


# ------------------------------------------------------------------ channels


def _constants(
    config: Config, reports: Sequence[SiteReport]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std per channel, in units of [0, 1] for bytes."""
    first, given = reports[0], (config.data.mean, config.data.std)
    if first.kind in ("table", "text"):
        if given != (None, None):
            raise UserError(
                f"data.mean, data.std: the sites' data are a {first.kind}, which has no channels; "
                "leave them out"
            )
        return (), ()
    if given != (None, None):
        mean, std = (value or () for value in given)
        if (len(mean), len(std)) != (first.shape[0], first.shape[0]):
            raise UserError(
                f"data.mean has {len(mean)} and data.std has {len(std)} numbers, and the samples "
                f"at the sites have {first.shape[0]} channels; give one number per channel for both"
            )
        return mean, std
    return _measured(reports)


def _measured(reports: Sequence[SiteReport]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    for report in reports:
        if report.channels is None or len(report.channels) != report.shape[0]:
            raise UserError(
                f"site '{report.site}': it does not share the mean and std of its channels; "
                "set data.mean and data.std, or let the site share its statistics"
            )
    per_channel = zip(*(report.channels or () for report in reports), strict=True)
    moments = [merged(channel) for channel in per_channel]
    unit = 255 if reports[0].dtype == _BYTES else 1
    return tuple(m.mean / unit for m in moments), tuple(
        m.std / unit if m.squares else 1.0 for m in moments
    )
