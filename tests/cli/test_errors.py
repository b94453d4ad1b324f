"""The boundary: every way a command can fail ends in words on stderr and an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from hkvtool.cli.errors import guarded
from hkvtool.model.errors import Exit, HkvError, TraceError

Process = Callable[..., "subprocess.Popen[bytes]"]


def failing(error: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise error

    return run


@pytest.fixture(autouse=True)
def no_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HKV_DEBUG", raising=False)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (HkvError("it broke"), 2, "error: it broke\n"),
        (
            TraceError("it is torn", where="a.duckdb, byte 7", hint="ingest it again"),
            3,
            "error: it is torn\n  where: a.duckdb, byte 7\n  hint: ingest it again\n",
        ),
        (HkvError("dropped", exit_code=Exit.INCONCLUSIVE), 4, "error: dropped\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
        (
            FileNotFoundError(2, "No such file or directory", "x.jsonl"),
            2,
            "error: No such file or directory\n  where: x.jsonl\n",
        ),
        (
            ModuleNotFoundError("No module named 'duckdb'", name="duckdb"),
            2,
            f"error: duckdb is not installed beside hkvtool\n  where: {sys.prefix}\n  hint: install hkvtool with its dependencies, in an environment of its own\n",
        ),
    ],
)
def test_told_errors(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(failing(error)) == code
    assert capsys.readouterr() == ("", text)


def test_sigterm_is_put_back() -> None:
    assert guarded(lambda: os.kill(os.getpid(), signal.SIGTERM)) == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_unexpected_asks_for_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(failing(ZeroDivisionError("by nought"))) == 70
    what, where, hint = capsys.readouterr().err.splitlines()
    assert what == "error: unexpected ZeroDivisionError: by nought"
    assert "test_errors.py:" in where and where.endswith(" in run")
    assert "report" in hint and "HKV_DEBUG=1" in hint


def test_a_checkout_taken_for_the_package_is_no_bug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr("hkvtool.cli.errors._HOME", tmp_path)
    missing = ModuleNotFoundError("No module named 'hkvtool.state'", name="hkvtool.state")
    assert guarded(failing(missing)) == 2
    what, _, hint = capsys.readouterr().err.splitlines()
    assert what.startswith("error: hkvtool.state is not in ") and "checkout" in what
    assert "installed" in hint


def test_debug_adds_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HKV_DEBUG", "1")
    assert guarded(failing(HkvError("it broke"))) == 2
    text = capsys.readouterr().err
    assert "Traceback (most recent call last)" in text
    assert text.endswith("error: it broke\n")


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (1, 1), (Exit.INCONCLUSIVE, 4)])
def test_the_result_is_the_exit_code(result: int | None, code: int) -> None:
    assert guarded(lambda: result) == code


def test_what_a_trace_says_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    guarded(failing(HkvError("a\x1b[2Jb", where="c\nd")))
    assert capsys.readouterr().err == "error: a\\x1b[2Jb\n  where: c\\nd\n"


@pytest.mark.parametrize("command", ["schema", "rules"])
def test_a_reader_that_leaves_early_is_no_error(process: Process, command: str) -> None:
    run = process(command)
    assert run.stdout is not None and run.stderr is not None
    run.stdout.close()
    assert run.stderr.read() == b""
    assert run.wait(timeout=60) == 141


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    run = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m hkvtool schema > /dev/full'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr) == (
        2,
        "error: No space left on device\n  where: the output\n",
    )


@pytest.mark.parametrize("args", ["--version", "rules", "no-such-command"])
def test_closed_streams_are_no_error(args: str, tmp_path: Path) -> None:
    line = f'"{sys.executable}" -m hkvtool {args} >&- 2>&-'
    assert subprocess.run(["sh", "-c", line], cwd=tmp_path).returncode == 2 * ("no" in args)


@pytest.mark.parametrize("args", ["tui t.jsonl", "record --live -- true"])
def test_without_a_keyboard_there_is_no_terminal(args: str, tmp_path: Path) -> None:
    line = f'"{sys.executable}" -m hkvtool {args} <&-'
    run = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2 and "terminal" in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_encoding_without_the_letter_is_no_error(process: Process) -> None:
    run = process("rules", "no\u2192where", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (2, b"")
    assert err.startswith(b"error: there is no rule 'no\\u2192where'")


def test_an_interrupt_in_code_given_as_text_is_the_exit_code_too(tmp_path: Path) -> None:
    (tmp_path / "ended.py").write_text(
        "import os, signal, sys\n"
        "from hkvtool.cli.errors import guarded\n"
        "text = 'os.kill(os.getpid(), signal.SIGTERM); signal.pause()'\n"
        "sys.exit(guarded(lambda: exec(text, {'os': os, 'signal': signal})))\n"
    )
    run = subprocess.run([sys.executable, "-m", "ended"], cwd=tmp_path, capture_output=True)
    assert (run.returncode, run.stderr) == (143, b"terminated\n")


def test_a_query_that_a_signal_ended_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    def asked() -> int:
        raise RuntimeError("Query interrupted")

    assert guarded(asked) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_it_is_told_which_signal_ended_a_query(capsys: pytest.CaptureFixture[str]) -> None:
    def asked() -> int:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("Query interrupted")

    assert guarded(asked) == 143
    assert capsys.readouterr().err == "terminated\n"
