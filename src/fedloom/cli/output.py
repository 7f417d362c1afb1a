"""How the command line speaks: sentences to stderr, results to stdout, exit codes 0 done, 1 failed, 2 bad input, 130 stopped."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import typer
from rich.console import Console
from rich.table import Table

from fedloom.core.errors import RunError, UserError

F = TypeVar("F", bound=Callable[..., Any])

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)


def say(text: str) -> None:
    """A line to the person, not to the pipe."""
    err.print(text, markup=False, highlight=False)


def say_if(wanted: bool) -> Callable[[str], None]:
    """`say`, or nothing."""
    return say if wanted else lambda text: None


def print_json(value: Any) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def user_errors(command: F) -> F:
    """A command whose errors are sentences and exit codes, not tracebacks."""

    @functools.wraps(command)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except UserError as error:
            say(f"error: {error}")
            raise typer.Exit(2) from None
        except RunError as error:
            if kwargs.get("debug"):
                err.print_exception()
            say(f"failed: {error}")
            raise typer.Exit(1) from None
        except OSError as error:
            say(
                f"error: cannot use '{error.filename}': {error.strerror}; choose another path, or mend its permissions"
            )
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            say("stopped; the last whole round is safe")
            raise typer.Exit(130) from None

    return cast(F, told)


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    right: Sequence[int] = (),
) -> Table:
    """A plain table; columns in `right` are numbers."""
    result = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for number, name in enumerate(columns):
        result.add_column(
            name,
            justify="right" if number in right else "left",
            overflow="fold",
            no_wrap=bool(right),
        )
    for row in rows:
        result.add_row(*row)
    return result


def print_table(shown: Table) -> None:
    """A table as wide as it has to be: a number that is cut is worse than a line that is too long."""
    shown.width = out.measure(shown, options=out.options.update(max_width=10_000)).maximum
    out.print(shown)


def megabytes(count: float) -> str:
    """Bytes for a person.

    >>> megabytes(12341200)
    '12.3 MB'
    """
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"


def rounds_to(each: Sequence[float | None], rounds: int) -> str:
    """Rounds to a target, the mean over seeds; beyond the length of the runs if not all got there, and how many of them did.

    >>> rounds_to([3, 8], 20), rounds_to([None, None], 20), rounds_to([3, None], 20)
    ('5.5', '20+', '20+ (1 of 2)')
    """
    known = [r for r in each if r is not None]
    if len(known) == len(each):
        return f"{round(sum(known) / len(known), 1):g}"
    return f"{rounds}+ ({len(known)} of {len(each)})" if known else f"{rounds}+"


def facts(values: Mapping[str, Any]) -> Table:
    """Names and values, one a line."""
    result = table(["", ""], [[name, str(value)] for name, value in values.items()])
    result.show_header = False
    return result
