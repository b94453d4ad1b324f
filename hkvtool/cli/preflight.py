"""`hkvtool preflight`: the static rules on an engine's declarations, before its first request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.check import Format
from hkvtool.model.errors import Exit
from hkvtool.model.rules import Severity

if TYPE_CHECKING:
    from hkvtool.analyzers.preflight import Preflight
    from hkvtool.model.event import Event
    from hkvtool.report.checked import Checked

_MOST = 16 << 20
"""Bytes of a configuration; what is larger is a trace."""


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TRACE|CONFIG",
            help="A trace, a recording that has just begun, or a JSON configuration.",
            show_default=False,
        ),
    ],
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> int:
    """Compare what an engine's producers declare with what its consumers expect: 2xx and 4xx.

    Needs no request: a trace of nothing but `pool`, `group` and `kernel` events will do, or a
    configuration `{"pools": [...], "groups": [...], "kernels": [...]}` with the keys of those
    events. What only one side states is listed; it cannot be compared.

    Exits with 0 where nothing disagrees, 1 where something does, 3 where it cannot be read.
    """
    from hkvtool.analyzers.preflight import preflight
    from hkvtool.report.checked import Checked

    events = _declared(source)
    found = preflight(events)
    checked = Checked(source, found.report, {e.pos: e for e in events})
    _print(found, checked, format)
    return Exit.FINDINGS if found.report.count(Severity.ERROR) else Exit.OK


def _declared(source: str) -> list[Event]:
    from hkvtool.analyzers.preflight import KINDS, config_events
    from hkvtool.store import open_trace

    path = Path(source)
    if path.is_file() and path.stat().st_size <= _MOST:
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError, OSError):
            config = None
        if isinstance(config, dict) and "ev" not in config:
            return config_events(config)
    with open_trace(source) as trace:
        return list(trace.events(kinds=KINDS))


def _print(found: Preflight, checked: Checked, format: Format) -> None:
    if format is Format.JSON:
        from hkvtool.cli.traces import print_json

        print_json({"path": checked.name, **found.as_json()})
    elif format is Format.SARIF:
        from hkvtool.report.sarif import sarif

        print(sarif([checked]))
    elif format is Format.JUNIT:
        from hkvtool.report.junit import junit

        print(junit([checked], Severity.ERROR))
    elif format is Format.GITHUB:
        from hkvtool.report.github import github_lines

        print("\n".join(github_lines(checked)))
    else:
        from hkvtool.cli.console import console
        from hkvtool.report.preflight import preflight_lines

        out = console()
        for line in preflight_lines(found, checked, out.width):
            out.print(line.text, style=line.style or None, soft_wrap=True)
