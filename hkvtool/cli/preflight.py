"""`hkvtool preflight`: the static rules on an engine's declarations, before its first request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hkvtool.cli.check import Format
from hkvtool.model.errors import Exit, TraceError
from hkvtool.model.event import MALFORMED
from hkvtool.model.rules import Severity

if TYPE_CHECKING:
    from hkvtool.analyzers.preflight import Preflight
    from hkvtool.importers.model_caches import Flags
    from hkvtool.importers.model_config import Derived
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
    block_size: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--block-size", min=1, help="Tokens of a block. [model config]"),
    ] = None,
    kv_cache_dtype: Annotated[
        str, typer.Option("--kv-cache-dtype", help="As for the engine. [model config]")
    ] = "auto",
    ssm_dtype: Annotated[
        str, typer.Option("--ssm-dtype", help="Dtype of recurrent states. [model config]")
    ] = "auto",
    tensor_parallel: Annotated[
        int, typer.Option("--tensor-parallel", min=1, help="Shards of a model. [model config]")
    ] = 1,
    max_batched: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--max-num-batched-tokens", min=1, help="Tokens of one step. [model config]"),
    ] = None,
    blocks: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--blocks", min=1, help="Blocks of the pool. [model config]"),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> int:
    """Compare what an engine's producers declare with what its consumers expect: 2xx and 4xx.

    Needs no request: a trace of nothing but `pool`, `group` and `kernel` events will do, or a
    configuration `{"pools": [...], "groups": [...], "kernels": [...]}` with the keys of those
    events. What only one side states is listed; it cannot be compared.

    A model's own `config.json` will do as well: the groups are derived from it and from the
    engine's flags, and what cannot be derived is listed.

    Exits with 0 where nothing disagrees, 1 where something does, 3 where it cannot be read.
    """
    from hkvtool.analyzers.preflight import preflight
    from hkvtool.importers.model_caches import Flags
    from hkvtool.report.checked import Checked

    flags = Flags(
        block_size, kv_cache_dtype, ssm_dtype, tensor_parallel, max_batched, blocks
    )  # fmt: skip
    events, model = _declared(source, flags)
    found = preflight(events)
    checked = Checked(source, found.report, {e.pos: e for e in events})
    _print(found, checked, format, model)
    return Exit.FINDINGS if found.report.count(Severity.ERROR) else Exit.OK


def _declared(source: str, flags: Flags) -> tuple[list[Event], Derived | None]:
    """The declarations, and where they were derived from a model's config what came of it."""
    from hkvtool.analyzers.preflight import KINDS, config_events
    from hkvtool.importers.model_caches import Flags
    from hkvtool.importers.model_config import derived, is_model_config
    from hkvtool.store import open_trace

    path, problem = Path(source), ""
    if path.is_file():
        config, problem = _config(path)
        if config is not None:
            if is_model_config(config):
                model = derived(config, flags)
                return config_events(model.declared), model
            _no_flags(flags, Flags())
            return config_events(config), None
    with open_trace(source) as trace:
        _no_flags(flags, Flags())
        events = list(trace.events(kinds=KINDS))
        if not events and problem and all(e.ev == MALFORMED for e in trace.events(until=1)):
            raise TraceError(
                f"{source} is neither a trace nor a configuration: {problem}",
                hint="preflight wants a trace, or the config.json that the engine loads",
            )
        return events, None


def _config(path: Path) -> tuple[dict[str, Any] | None, str]:
    """A configuration, or why the file is none."""
    if path.stat().st_size > _MOST:
        return None, f"no configuration is larger than {_MOST >> 20} MiB"
    try:
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        return None, "it is nested too deeply"
    except (ValueError, OSError) as e:
        return None, f"no JSON: {e}"
    if not isinstance(config, dict):
        return None, "its JSON is no object"
    return (None, "") if "ev" in config else (config, "")


def _no_flags(flags: Flags, none: Flags) -> None:
    if flags != none:
        raise typer.BadParameter("the engine's flags go with a model's config.json only")


def _print(found: Preflight, checked: Checked, format: Format, model: Derived | None) -> None:
    if format is Format.JSON:
        from hkvtool.cli.traces import print_json

        told = {} if model is None else {"model": model.as_json()}
        print_json({"path": checked.name, **found.as_json(), **told})
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
        from hkvtool.report.preflight import model_lines, preflight_lines

        out = console()
        lines = list(preflight_lines(found, checked, out.width))
        if model is not None:
            lines += model_lines(model, out.width)
        for line in lines:
            out.print(line.text, style=line.style or None, soft_wrap=True)
