"""Exit codes and messages of expected errors, and the text that commands print."""

import json

import pytest
import typer

from fedloom.cli import output
from fedloom.core.errors import RunError, UserError


def outcome(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and the message of a command that raises this error."""

    @output.user_errors
    def command() -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        command()
    captured = capsys.readouterr()
    assert captured.out == ""
    return ended.value.exit_code, captured.err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("no method 'x'"), 2, "error: no method 'x'\n"),
        (RunError("training diverged"), 1, "failed: training diverged\n"),
        (
            FileNotFoundError(2, "No such file or directory", "x.toml"),
            2,
            "error: cannot use 'x.toml': No such file or directory; "
            "choose another path or change its permissions\n",
        ),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_an_expected_error_is_a_message_and_an_exit_code(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(error, capsys) == (code, message)


def test_an_unexpected_error_keeps_its_traceback() -> None:
    @output.user_errors
    def command() -> None:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        command()


def test_a_command_without_errors_returns_its_value() -> None:
    assert output.user_errors(lambda x: x + 1)(2) == 3


def test_json_is_one_line_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"name": "é", "values": [1, None]})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"name": "é", "values": [1, None]}
    assert captured.out.count("\n") == 1 and captured.err == "" and "é" in captured.out
