"""`hkvtool probe`: does reuse change what a running server answers?"""

from __future__ import annotations

import json
import os
import secrets
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.amounts import seconds
from hkvtool.cli.probe_choices import (
    boundaries_of,
    patterns_of,
    progress_line,
    range_of,
    scenario_in,
    shape_of,
)
from hkvtool.model.errors import Exit, HkvError

if TYPE_CHECKING:
    from hkvtool.probe.run import Probe


class Format(str, Enum):
    """How to print what came out."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server, e.g. http://host:8000.")],
    model: Annotated[str, typer.Option("--model", help="Else the first that it lists.")] = "",
    comparisons: Annotated[
        int, typer.Option("--comparisons", min=1, help="How many, over the patterns in turn.")
    ] = 200,
    pattern: Annotated[
        list[str] | None, typer.Option("--pattern", metavar="NAME", help="Just these patterns.")
    ] = None,
    length: Annotated[
        int, typer.Option("--length", min=0, help="Tokens of a prompt; 0 fits the boundaries.")
    ] = 0,
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", min=1, max=256, help="Tokens of an answer.")
    ] = 8,
    boundary: Annotated[
        list[str] | None,
        typer.Option("--boundary", metavar="NAME=N", help="Cut there too, e.g. window=1024."),
    ] = None,
    cache_tokens: Annotated[
        int, typer.Option("--cache-tokens", min=0, help="Held at most; else as the server says.")
    ] = 0,
    adapter: Annotated[
        list[str] | None, typer.Option("--adapter", metavar="NAME", help="Of the model, by name.")
    ] = None,
    vocabulary: Annotated[
        str, typer.Option("--vocabulary", metavar="LOW:HIGH", help="Token ids that are sent.")
    ] = "32:250",
    no_salt: Annotated[
        bool, typer.Option("--no-salt", help="The server's salts are not to be used.")
    ] = False,
    reset: Annotated[
        str, typer.Option("--reset", metavar="PATH", help="POST here empties the server's cache.")
    ] = "",
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", min=0, help="Nats that count; else by the measured noise."),
    ] = None,
    alpha: Annotated[
        float, typer.Option("--alpha", min=1e-9, max=0.5, help="Chance of a wrong alarm, in all.")
    ] = 0.05,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the prompts; else random.")] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=64, help="Requests at once.")
    ] = 4,
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Requests a second at most; 0: no limit.")
    ] = 0.0,
    max_requests: Annotated[int, typer.Option("--max-requests", min=1)] = 10_000,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=1, help="Sent and asked for.")
    ] = 5_000_000,
    max_time: Annotated[str, typer.Option("--max-time", help="E.g. 15m.")] = "1h",
    timeout: Annotated[str, typer.Option("--timeout", help="Of one request.")] = "120s",
    key_from: Annotated[
        str, typer.Option("--key-from", metavar="VARIABLE", help="Holds the key of the API.")
    ] = "OPENAI_API_KEY",
    state: Annotated[
        Path | None, typer.Option("--state", help="Keep what is done here; go on with it.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FOLDER", help="Each divergence, to repeat.")
    ] = None,
    again: Annotated[
        Path | None, typer.Option("--again", metavar="FILE", help="Repeat a saved divergence.")
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option("--recording", metavar="NAME.hkv", help="Of the server: snapshot it then."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> int:
    """Ask a server the same with and without reuse, and say whether its answers differ.

    Prompts are random tokens. First the noise is measured without any reuse, then each pattern of
    reuse is compared with a cold answer; what diverges is repeated, against the same requests with
    nothing shared. Nothing but URL is asked. Patterns: warm, extend, fork, return, turns, churn,
    reload, load, salt, adapter, abort.

    Exits with 0 where reuse changed nothing, 1 where it did beyond chance, 3 where the server
    cannot be asked, 4 where nothing can be said for sure.
    """
    from hkvtool.probe.judging import DIFFERS, SAME
    from hkvtool.probe.load import Limits, Load
    from hkvtool.probe.outcome import absences, cold_again, outcome
    from hkvtool.probe.patterns import PATTERNS
    from hkvtool.probe.run import Options, Probe
    from hkvtool.probe.server import Server
    from hkvtool.probe.survey import begin

    ids, wanted = range_of(vocabulary), patterns_of(pattern)
    repeated = None if again is None else scenario_in(again)
    cuts = boundaries_of(boundary)
    if reset and not reset.startswith("/"):
        raise HkvError(f"--reset {reset}: no path of the server", hint="e.g. /reset_prefix_cache")
    limits = Limits(
        max_requests, max_tokens, seconds(max_time, "--max-time") or 0.0, concurrency, rate
    )
    server = Server(
        url, key=os.environ.get(key_from, ""), timeout=seconds(timeout, "--timeout") or 0.0
    )
    survey, dialect = begin(server, Load(limits), model, ids, salts=not no_salt)
    survey.cache = cache_tokens or survey.cache
    adapters = tuple(adapter or survey.adapters)
    shape = shape_of(survey, cuts, length, output_tokens, concurrency, adapters, ids)
    chosen = secrets.randbelow(1 << 31) if seed is None else seed
    options = Options(comparisons, tolerance=tolerance, alpha=alpha, seed=chosen, reset=reset)
    absent = absences(survey, dialect, options, adapters=bool(adapters), filler=shape.filler)
    asked = tuple(p for p in wanted or PATTERNS if p not in absent)
    if not asked:
        raise HkvError(
            f"none of these patterns can be asked: {absent[wanted[0]]}", where=server.url,
            exit_code=Exit.INCONCLUSIVE,
        )  # fmt: skip
    options, kept = _begin(options, asked, state, url, shape.length, given=seed is not None)
    probe = Probe(dialect, shape, options, kept, cold_again(survey, reset), told=progress_line())
    links = None
    if recording is not None:
        from hkvtool.cli.probe_recording import Snapshots

        links = Snapshots(recording, save)
        probe.caught = links.take
    probe.run(repeated)
    if save is not None:
        _save(probe, save)
    if links is not None:
        links.read(probe)
    report = outcome(probe, survey, absent)
    _print(report, format)
    verdict = report["summary"]["verdict"]
    return {DIFFERS: Exit.FINDINGS, SAME: Exit.OK}.get(verdict, Exit.INCONCLUSIVE)


def _begin(
    options: Any, asked: tuple[str, ...], state: Path | None, url: str, length: int, *, given: bool
) -> tuple[Any, Any]:
    """The options and what is kept, from where an earlier probe was stopped."""
    from dataclasses import replace

    from hkvtool.probe.kept import Kept

    options = replace(options, patterns=asked)
    if state is None:
        return options, Kept()
    plan = {
        "url": url, "comparisons": options.comparisons, "patterns": list(asked), "length": length,
        "tolerance": options.tolerance, "alpha": options.alpha, "seed": options.seed,
    }  # fmt: skip
    kept, begun = Kept.at(state, plan)
    if given and begun["seed"] != options.seed:
        raise HkvError(f"{state} was begun with --seed {begun['seed']}")
    return replace(options, seed=int(begun["seed"])), kept


def _save(probe: Probe, folder: Path) -> None:
    """The smallest scenario of each divergence, for `--again`."""
    folder.mkdir(parents=True, exist_ok=True)
    for divergence in probe.found:
        place = folder / f"{divergence.id}.json"
        place.write_text(json.dumps(divergence.scenario.as_json()) + "\n", encoding="ascii")
        divergence.links["replay"] = str(place)


def _print(report: dict[str, Any], format: Format) -> None:
    if format is Format.JSON:
        print(json.dumps(report))
    elif format is Format.JUNIT:
        from hkvtool.probe.junit import junit

        print(junit(report))
    else:
        from hkvtool.probe.told import report_lines

        print("\n".join(report_lines(report)))
