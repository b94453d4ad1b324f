"""The root command: a group that imports a command's module only when it is run."""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module
from itertools import groupby
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hkvtool import __version__
from hkvtool.cli.commands import commands
from hkvtool.model.errors import Exit, HkvError

PROG = "hkvtool"
_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]
"""Click's UsageError, wherever this version of typer keeps it."""


class LazyGroup(TyperGroup):
    """The commands of the table, loaded one at a time."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = commands().get(cmd_name)
        if known is None:
            return None
        target = import_module(known.module).command
        if not isinstance(target, typer.Typer):
            app = _app()
            app.command(name=cmd_name)(target)
            target = app
        loaded = typer.main.get_command(target)
        loaded.name = cmd_name
        return loaded

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in commands() and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], commands(), n=1)
            hint = f"did you mean `{PROG} {near[0]}`?" if near else f"see `{PROG} --help`"
            raise HkvError(f"there is no command {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for section, rows in groupby(commands().values(), key=lambda c: c.section):
            with formatter.section(section):
                formatter.write_dl([(c.name, c.line) for c in rows])


def _app(*, add_completion: bool = False, **settings: Any) -> typer.Typer:
    return typer.Typer(
        add_completion=add_completion,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )


def _version(asked: bool) -> None:
    if asked:
        print(f"{PROG} {__version__}")
        raise typer.Exit


def _root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_version, is_eager=True, help="Say which version this is."
        ),
    ] = False,
) -> None:
    """Record what the KV cache of an inference engine does, say which prefix hits could not
    really be resumed and why, and run the same events again until the fault happens.
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), file=sys.stderr)
        raise typer.Exit(Exit.USAGE)


def root() -> Any:
    """The root command as typer's own kind of object."""
    app = _app(cls=LazyGroup, invoke_without_command=True, add_completion=True)
    app.callback()(_root)
    return typer.main.get_command(app)


def run(args: list[str]) -> int | None:
    """Run one command line. Errors are left to the boundary."""
    group = root()
    if f"_{PROG.upper()}_COMPLETE" in os.environ:
        group.main(args, prog_name=PROG)
    try:
        with group.make_context(PROG, args) as ctx:
            result = group.invoke(ctx)
    except typer.Exit as e:
        return e.exit_code
    except typer.Abort as e:
        raise KeyboardInterrupt from e
    except _USAGE_ERROR as e:
        path = getattr(e.ctx, "command_path", PROG)
        what = e.format_message().rstrip(".")
        raise HkvError(what[:1].lower() + what[1:], hint=f"see `{path} --help`") from e
    return result if isinstance(result, int) else None
