"""The console takes text as it is, in a width that someone said."""

from __future__ import annotations

import pytest

from hkvtool.cli.console import PIPE_WIDTH, console


def test_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("[bold]x[/bold] :smile: [/nonsense]")
    assert capsys.readouterr().out == "[bold]x[/bold] :smile: [/nonsense]\n"


def test_a_pipe_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == PIPE_WIDTH


def test_columns_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert console().width == 60


def test_no_color_is_honoured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    console().print("x", style="red")
    assert "31" not in capsys.readouterr().out
    monkeypatch.delenv("NO_COLOR")
    console().print("x", style="red")
    assert "\x1b[31mx" in capsys.readouterr().out


def test_stderr_is_another_stream(capsys: pytest.CaptureFixture[str]) -> None:
    console(stderr=True).print("talk")
    assert capsys.readouterr() == ("", "talk\n")
