"""What the sites of a deployment do not agree on: a sentence for each, with both values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fedloom.data.sources.errors import shortened
from fedloom.deploy.given import Given
from fedloom.deploy.report import (
    CATEGORIES,
    EMPTY,
    NUMBERS,
    ColumnReport,
    SiteReport,
    Software,
    this_software,
)

_SAME_VERSIONS = "install the same version at the server and at all sites"


def differences(reports: Sequence[SiteReport], given: Given) -> Iterator[str]:
    """All that keeps these sites from a run together."""
    ours = this_software()
    for report in reports:
        yield from other_software(report, ours)
        if not report.clients:
            yield f"site '{report.site}': it has no client with training samples; check its data"
    first = reports[0]
    for report in reports[1:]:
        yield from _other_form(report, first)
        yield from _other_columns(report, first)
    yield from _class_problems(reports, given)
    if {column.name for column in first.columns} and not any(_lacking(reports)):
        for column in first.columns:
            yield from _column_problems(column.name, reports, given)


def _lacking(reports: Sequence[SiteReport]) -> Iterator[str]:
    """Columns that a site does not have; its other columns are then not looked at."""
    for report in reports[1:]:
        yield from {c.name for c in report.columns} ^ {c.name for c in reports[0].columns}


def other_software(report: SiteReport, ours: Software) -> Iterator[str]:
    """Versions at a site that are not those of the server."""
    for name in ("protocol", "fedloom", "torch"):
        theirs, expected = getattr(report.software, name), getattr(ours, name)
        if theirs != expected:
            what = "the protocol" if name == "protocol" else f"the version of {name}"
            yield (
                f"site '{report.site}': {what} is {theirs}, and {expected} at the server; "
                f"{_SAME_VERSIONS}"
            )


def _other_form(report: SiteReport, first: SiteReport) -> Iterator[str]:
    remedy = "use the same kind of files, prepared in the same way"
    for name in ("kind", "shape", "dtype"):
        theirs, expected = getattr(report, name), getattr(first, name)
        if theirs != expected and not (name == "shape" and report.columns and first.columns):
            yield (
                f"site '{report.site}': the {name} of its samples is {theirs}, and {expected} at "
                f"site '{first.site}'; {remedy}"
            )
            return  # another kind has another shape and type as well


def _other_columns(report: SiteReport, first: SiteReport) -> Iterator[str]:
    if report.kind != first.kind:
        return
    theirs, expected = ([c.name for c in r.columns] for r in (report, first))
    remedy = "rename it with the reader's option columns=OTHER:NAME, or drop it at the other sites"
    for name in expected:
        if name not in theirs:
            yield (
                f"site '{report.site}': it has no column '{name}' (its columns are "
                f"{shortened(theirs)}), which site '{first.site}' has; {remedy}"
            )
    for name in theirs:
        if name not in expected:
            yield (
                f"site '{report.site}': it has the column '{name}', which site '{first.site}' "
                f"lacks (its columns are {shortened(expected)}); {remedy}"
            )


# ------------------------------------------------------------------ classes


def _class_problems(reports: Sequence[SiteReport], given: Given) -> Iterator[str]:
    if given.classes:
        for report in reports:
            if unknown := [name for name in report.classes if name not in given.classes]:
                yield (
                    f"site '{report.site}': it has the class {_quoted(unknown)}, and the classes "
                    f"given are {_quoted(given.classes)}; correct the labels, or given.classes"
                )
        return
    first = reports[0]
    for report in reports[1:]:
        if report.numbered != first.numbered:
            yield (
                f"site '{report.site}': its classes are {_quoted(report.classes)}, and "
                f"{_quoted(first.classes)} at site '{first.site}': numbers at one and words at the "
                "other; use the same names, or list them all in given.classes"
            )
    if len(agreed_classes(reports, given)) < 2:
        yield f"all sites have the one class {_quoted(first.classes)}; check the labels"


def agreed_classes(reports: Sequence[SiteReport], given: Given) -> tuple[str, ...]:
    """The class names of all sites together."""
    if given.classes:
        return given.classes
    if len({report.classes for report in reports}) == 1:
        return reports[0].classes  # in the order of the files, which may be a chosen one
    names = {name for report in reports for name in report.classes}
    by_value = all(report.numbered for report in reports)
    return tuple(sorted(names, key=float if by_value else None))


# ------------------------------------------------------------------ columns


def at_all_sites(name: str, reports: Iterable[SiteReport]) -> list[tuple[str, ColumnReport]]:
    """The column of this name at every site, with the name of the site."""
    return [(r.site, column) for r in reports for column in r.columns if column.name == name]


def _column_problems(name: str, reports: Sequence[SiteReport], given: Given) -> Iterator[str]:
    columns = [(s, c) for s, c in at_all_sites(name, reports) if c.holds != EMPTY]
    if not columns:
        yield f"column '{name}' has no value at any site; drop it with the reader's option drop="
        return
    site, column = columns[0]
    for other, theirs in columns[1:]:
        if theirs.holds != column.holds:
            yield (
                f"site '{other}': column '{name}' holds {theirs.holds}, and {column.holds} at site "
                f"'{site}'; write the values in the same way, or set the reader's option "
                f"categorical='{name}' at both"
            )
            return
    if name in given.categories or name in given.scales:
        yield from _given_problems(name, columns, given)
        return
    for site, column in columns:
        if column.categories is None and column.moments is None:
            wanted = "mean and std" if column.holds == NUMBERS else "categories"
            yield (
                f"site '{site}': it does not share the {wanted} of column '{name}'; "
                f"give them as given.columns.{name}, or let the site share its statistics"
            )


def _given_problems(
    name: str, columns: Sequence[tuple[str, ColumnReport]], given: Given
) -> Iterator[str]:
    is_categories = name in given.categories
    expected = CATEGORIES if is_categories else NUMBERS
    for site, column in columns:
        if column.holds != expected:
            yield (
                f"site '{site}': column '{name}' holds {column.holds}, and {expected} are given; "
                f"correct given.columns.{name}, or the column"
            )
        known = given.categories.get(name, ())
        if unknown := [c for c in column.categories or () if is_categories and c not in known]:
            yield (
                f"site '{site}': column '{name}' has the category {_quoted(unknown)}, and those "
                f"given are {_quoted(known)}; correct the column, or given.columns.{name}"
            )


def _quoted(names: Iterable[str]) -> str:
    return shortened((f"'{name}'" for name in names), 5)
