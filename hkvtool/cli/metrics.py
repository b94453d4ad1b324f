"""`hkvtool metrics`: a running recording for Prometheus."""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.recording import is_recording
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LISTEN = "127.0.0.1:9464"


def command(
    recording: Annotated[
        Path, typer.Argument(metavar="NAME.hkv", help="A recording that goes on, or has ended.")
    ],
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help=f"Serve them; else on {LISTEN}."),
    ] = None,
    textfile: Annotated[
        Path | None,
        typer.Option("--textfile", metavar="FILE", help="Write them, for the node exporter."),
    ] = None,
    every: Annotated[
        float, typer.Option("--every", min=0.2, help="Seconds between two readings.")
    ] = 5.0,
) -> None:
    """Count a running recording for Prometheus: events, drops, matched and resumable tokens,
    findings by rule, blocks by form.

    With --textfile it ends with the recording, with --listen it serves on until it is interrupted.
    Whoever reaches the port can read the counts; they hold names of pools and groups, of requests
    nothing. Needs the extra `metrics`: pip install 'hkvtool[metrics]'.
    """
    if find_spec("prometheus_client") is None:
        raise HkvError(
            "metrics need prometheus_client, which is not installed",
            hint="pip install 'hkvtool[metrics]'",
        )
    if listen is not None and textfile is not None:
        raise HkvError("--listen and --textfile are two ways to do it", hint="give one of them")
    if not is_recording(recording):
        raise TraceError(
            f"{recording} is no recording", hint="metrics are of a folder NAME.hkv; see `record`"
        )
    from prometheus_client import CollectorRegistry

    from hkvtool.report.metrics import Metrics

    metrics = Metrics(str(recording))
    registry = CollectorRegistry()
    registry.register(metrics)
    if textfile is None:
        _serve(registry, listen or LISTEN)
    more = True
    while more or textfile is None:
        more = more and metrics.advance()
        if textfile is not None:
            _write(registry, textfile)
        if more or textfile is None:
            time.sleep(every)


def _serve(registry: CollectorRegistry, listen: str) -> None:
    from prometheus_client import start_http_server

    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise HkvError(f"--listen {listen}: no HOST:PORT", hint=f"e.g. {LISTEN}")
    try:
        server, _ = start_http_server(int(port), host.strip("[]"), registry)
    except OSError as e:
        raise HkvError(
            f"cannot listen on {listen}: {e.strerror or e}", hint="name another HOST:PORT"
        ) from e
    print(f"http://{host}:{server.server_port}/metrics", file=sys.stderr, flush=True)


def _write(registry: CollectorRegistry, path: Path) -> None:
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(str(path), registry)
    except OSError as e:
        raise HkvError(
            f"cannot write {shown(str(path))}: {e.strerror or e}", hint="name another --textfile"
        ) from e
