"""Output of the commands: messages to stderr, results to stdout, errors as exit codes.

Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedloom.core.errors import RunError, UserError, shown_text

F = TypeVar("F", bound=Callable[..., Any])

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)


def say(text: str) -> None:
    """Print a message for the user to stderr."""
    err.print(printable(text), markup=False, highlight=False)


def printable(text: str) -> str:
    """Text that any terminal can print: an argument may hold bytes that are not Unicode.

    >>> printable("run\\udcff")
    'run\\\\udcff'
    """
    return text.encode(errors="backslashreplace").decode()


def say_if(wanted: bool) -> Callable[[str], None]:
    """`say` if wanted, else a function that prints nothing."""
    return say if wanted else lambda text: None


def print_json(value: Any) -> None:
    """Print one JSON value to stdout."""
    sys.stdout.write(printable(json.dumps(value, ensure_ascii=False)) + "\n")
    sys.stdout.flush()


def user_errors(command: F) -> F:
    """Decorate a command: expected errors become a message and an exit code, not a traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
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
            say(f"error: {_file_problem(error)}")
            raise typer.Exit(2) from None
        except MemoryError:
            say("failed: there is not enough memory; use a smaller model, batch or data set")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            say("stopped")
            raise typer.Exit(130) from None

    return cast(F, wrapped)


def _file_problem(error: OSError) -> str:
    if error.filename is None:
        return f"a file cannot be used: {shown_text(str(error))}"
    return (
        f"cannot use '{shown_text(str(error.filename))}': {error.strerror}; "
        "choose another path or change its permissions"
    )


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    right: Sequence[int] = (),
) -> Table:
    """A table without lines. right: the numbers of the columns to align right."""
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
    """Print a table at its full width: a long line is better than a truncated number."""
    shown.width = out.measure(shown, options=out.options.update(max_width=10_000)).maximum
    out.print(shown)


def megabytes(count: float) -> str:
    """Bytes as text.

    >>> megabytes(12341200), megabytes(6536)
    ('12.3 MB', '6.5 kB')
    """
    if count < 1e5:
        return f"{count / 1e3:.1f} kB"
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"


def facts(values: Mapping[str, Any]) -> Table:
    """Names and values, one per line."""
    result = table(["", ""], [[name, escape(str(value))] for name, value in values.items()])
    result.show_header = False
    return result
