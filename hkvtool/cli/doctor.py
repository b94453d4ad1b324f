"""`hkvtool doctor`: what this machine and its engines allow."""

from __future__ import annotations

from typing import Annotated

import typer

from hkvtool.cli.traces import Format, print_json, print_line, print_table


def command(
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Say what would be recorded here, without starting an engine: interpreter, memory, disk,
    limits, what a clock costs, engines and which of their functions would be attached to.

    Run it with the engine's own Python: `python -m hkvtool doctor`.
    """
    from hkvtool.recorder.diagnosis import diagnosis

    found = diagnosis()
    if format is Format.JSON:
        print_json([fact.__dict__ for fact in found])
        return
    print_table(["", ""], [[fact.name, fact.value] for fact in found])
    advice = [(fact.name, fact.advice) for fact in found if fact.advice]
    if advice:
        print_line()
    for name, text in advice:
        print_line(f"{name}: {text}")
