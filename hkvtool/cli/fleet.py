"""`hkvtool fleet`: many traces, checked and asked at once."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hkvtool.cli import sql
from hkvtool.cli.check import FAIL_ON, IGNORE, ONLY, FailOn
from hkvtool.cli.check import Format as CheckFormat
from hkvtool.cli.check import verdict as check_verdict
from hkvtool.cli.choosing import keep_rules, rule_codes
from hkvtool.cli.errors import tell
from hkvtool.cli.traces import (
    LIMIT,
    Format,
    counted,
    print_json,
    print_line,
    print_table,
    progress,
)
from hkvtool.model.errors import Exit, HkvError
from hkvtool.model.rules import Severity
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.fleet.asking import Answer, Outcome
    from hkvtool.fleet.instances import Instance
    from hkvtool.fleet.spreading import Spreading

T = TypeVar("T")

command = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Check many traces in parallel: a folder of them, one an engine instance.",
)

_FOLDER = Annotated[
    str,
    typer.Argument(
        metavar="FOLDER", show_default=False,
        help="Traces, recordings or what `fleet ingest` made; s3://… and the like too.",
    ),
]  # fmt: skip
_WORKERS = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes on this machine; else one a core."),
]
_SHARED = Annotated[
    list[str] | None,
    typer.Option("--shared", metavar="POOL", help="One pool to all that declare it: a tier."),
]
_THROUGH = Annotated[
    list[str] | None,
    typer.Option("--through", metavar="POOL", help="Each engine's own, above a store they share."),
]
_DIRECT = Annotated[
    bool,
    typer.Option("--direct", help="Loads that name no pool come from other engines' devices."),
]
_SKEW = Annotated[
    float,
    typer.Option("--skew", metavar="MS", min=0, help="How far apart machines' wall clocks may be."),
]
RAY = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="A Ray cluster to do it; `auto` finds one."),
]


@command.callback(invoke_without_command=True)
def _list(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@command.command("ingest")
def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="TRACE...", help="Recordings and traces, one an instance."),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", help="The fleet's folder; s3://… and the like too.")
    ],
    host: Annotated[
        str | None, typer.Option("--host", help="Machine they are of; else as recorded.")
    ] = None,
    rank: Annotated[
        str | None, typer.Option("--rank", help="Rank they are of; else as the name says.")
    ] = None,
    workers: _WORKERS = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> int:
    """Put recordings and traces into a fleet, as Parquet partitioned by host, rank and time.

    Exits with 3 where one could not be read; the others are there all the same.
    """
    from hkvtool.fleet.ingesting import Ingest
    from hkvtool.fleet.instances import Instance
    from hkvtool.fleet.objects import is_remote, name_of, plain

    if not is_remote(output):
        try:
            Path(output).mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise HkvError(f"cannot make {output}: {e.strerror or e}") from e
    fleet = [
        Instance(name_of(source) if is_remote(source) else Path(source).name, source)
        for source in sources
    ]
    failed = events = 0
    taken: dict[str, str] = {}
    step = Ingest(output, host, rank, force)
    for kept in _asked(step, fleet, workers, None, f"filling {name_of(output)}"):
        if kept.trouble:
            failed += 1
            _tell(kept.trouble.said, kept.source)
        elif (other := taken.setdefault(kept.path, kept.source)) != kept.source:
            # --force is for what an earlier call has left, not for what came a moment ago.
            failed += 1
            tell(
                f"it goes to the same place as {other}, and only one of them is there now",
                where=plain(kept.path),
                hint=f"ingest {kept.source} by itself with another --host or --rank, then {other}",
            )
            continue
        events += kept.events
    done = counted(len(fleet) - failed, "instance")
    print(f"{shown(plain(output))}: {done}, {counted(events, 'event')}", file=sys.stderr)
    return Exit.UNREADABLE if failed else Exit.OK


@command.command("check")
def check(
    folder: _FOLDER,
    format: Annotated[
        CheckFormat, typer.Option("--format", help="How to print.")
    ] = CheckFormat.TABLE,
    fail_on: FAIL_ON = FailOn.ERROR,
    only: ONLY = None,
    ignore: IGNORE = None,
    shared: _SHARED = None,
    through: _THROUGH = None,
    direct: _DIRECT = False,
    skew: _SKEW = 50.0,
    workers: _WORKERS = None,
    ray: RAY = None,
) -> int:
    """Run every rule over every instance, and say what was found where.

    With --shared also what instances mean by the groups of that pool is held against each other,
    and what one loads from it against what the others stored there; with --through the same by hash
    alone; with --direct, what one fetches from nowhere that is named (P/D) against what the others
    published.

    JSON is one object in the contract of `hkvtool check`, each finding with its `instance`.
    Exit codes are those of `hkvtool check` over several traces.
    """
    from hkvtool.fleet.merged import Merged
    from hkvtool.fleet.objects import plain

    chosen = rule_codes(only), rule_codes(ignore)
    if only and not chosen[0] - chosen[1]:
        raise HkvError("--ignore leaves nothing of --only: no rule would be run")
    pools = _between(shared, through, direct)
    if pools and (only or ignore):
        raise HkvError(
            "--shared, --through and --direct go with every rule",
            hint="leave --only and --ignore away",
        )
    if pools and format not in (CheckFormat.JSON, CheckFormat.TABLE):
        raise HkvError("what lies between instances has no file to stand in", hint="--format json")
    merged = Merged(plain(folder), pools, _nanoseconds(skew))
    kept: list[Outcome] = []
    worst = {Exit.OK}
    for outcome in _outcomes(folder, workers, ray, pools):
        if outcome.report is None:
            worst.add(Exit.UNREADABLE)
            _tell(outcome.said, outcome.instance.name)
        else:
            keep_rules(outcome.report, *chosen)
            worst.add(check_verdict(outcome.report, fail_on))
        merged.add(outcome)
        if format not in (CheckFormat.JSON, CheckFormat.TABLE):
            kept.append(outcome)
    said = merged.as_json()
    if any("against" in f and _counts(f, fail_on) for f in said["findings"]):
        worst.add(Exit.FINDINGS)
    if said["inconclusive"]:
        worst.add(Exit.INCONCLUSIVE)
    if format is CheckFormat.JSON:
        import json

        print(json.dumps(said))
    elif format is CheckFormat.TABLE:
        from hkvtool.report.fleet import fleet_lines

        for line in fleet_lines(said):
            print_line(line)
    else:
        _print_each(kept, format, fail_on)
    order = (Exit.UNREADABLE, Exit.FINDINGS, Exit.INCONCLUSIVE, Exit.OK)
    return next(code for code in order if code in worst)


def _tell(said: dict[str, Any], name: str) -> None:
    """What is wrong with one of many, which costs the others nothing."""
    where = said.get("where", "")
    tell(
        said["error"], where=where if name in where else f"{name}: {where}" if where else name,
        hint=said.get("hint", ""),
    )  # fmt: skip


def _counts(finding: dict[str, Any], fail_on: FailOn) -> bool:
    least = fail_on.severity
    return least is not None and Severity(finding["severity"]).rank >= least.rank


@command.command("why")
def why(
    folder: _FOLDER,
    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="The engine's, the client's or a trace id.")
    ],
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    shared: _SHARED = None,
    through: _THROUGH = None,
    direct: _DIRECT = False,
    skew: _SKEW = 50.0,
    workers: _WORKERS = None,
    ray: RAY = None,
) -> int:
    """Say in which instances a request was, and whether the KV state of any is to blame.

    Engines that number their requests give out one id several times: by a client's id or a trace
    id the answers are of one request.

    With --shared, --through or --direct also by what it loaded from others, and of what is to blame
    what follows from it in all of them: who read it, who loaded that, what to purge.

    Exits with 0 where no instance's state is to blame, 1 where one's is, 3 where one could not be
    read, 4 where events were lost that an answer rests on.
    """
    from hkvtool.analyzers.verdict import Verdict
    from hkvtool.fleet.asking import WhyAsked
    from hkvtool.fleet.objects import name_of, plain

    pools = _between(shared, through, direct)
    fleet = _fleet(folder)
    told = _spreading(folder, fleet, pools, _nanoseconds(skew), workers, ray) if pools else None
    answers: list[Answer] = []
    failed = False
    question = WhyAsked(request, {} if told is None else told.charges)
    for answer in _asked(question, fleet, workers, ray, f"asking {name_of(folder)}"):
        if answer.trouble:
            failed = True
            _tell(answer.as_json(), answer.instance.name)
        if answer.trouble or answer.found is not None:
            answers.append(answer)
    if not answers:
        raise HkvError(f"no instance of {plain(folder)} knows a request {request!r}")
    roots = {a.instance.name: _root(told, a) for a in answers}
    if format is Format.JSON:
        print_json(
            [
                {"instance": a.instance.name, "asked_for": request, **a.as_json(),
                 **_over_all(told, roots[a.instance.name])}
                for a in answers
            ]
        )  # fmt: skip
    else:
        print_table(
            ("instance", "verdict", ""),
            [
                (a.instance.name, a.found.verdict.value, a.found.sentence)
                if a.found is not None
                else (a.instance.name, "unreadable", "; ".join(a.as_json().values()))
                for a in answers
            ],
            tall=True,
        )
        if told is None and any(_took_from_others(a) for a in answers):
            print_line(
                "what it loaded from other engines is judged with --shared, --through or --direct"
            )
        if told is not None:
            from hkvtool.report.fleet import spread_lines

            for root in dict.fromkeys(roots.values()):
                if root is not None:
                    for line in spread_lines(root, told.of(root)):
                        print_line(line)
    verdicts = {a.found.verdict for a in answers if a.found is not None}
    if failed:
        return Exit.UNREADABLE
    if verdicts & {Verdict.RESUMED_WRONGLY, Verdict.READ_WRONGLY}:
        return Exit.FINDINGS
    return Exit.INCONCLUSIVE if Verdict.INCONCLUSIVE in verdicts else Exit.OK


def _spreading(
    folder: str, fleet: Sequence[Instance], pools: frozenset[str], skew: int, workers: int | None,
    ray: str | None,
) -> Spreading:  # fmt: skip
    """What is wrong between instances, and how far it goes."""
    from hkvtool.fleet.merged import Merged
    from hkvtool.fleet.objects import name_of, plain

    merged = Merged(plain(folder), pools, skew)
    merged.take(_outcomes(folder, workers, ray, pools))
    by_name = {one.name: one for one in fleet}

    def ask(question: Any, names: Sequence[str]) -> Iterator[Any]:
        some = [by_name[name] for name in names]
        return _asked(question, some, workers, ray, f"following it in {name_of(folder)}")

    return merged.spreading(ask)


def _took_from_others(answer: Answer) -> bool:
    found = answer.found
    return found is not None and any(one.loaded is not None for one in found.sources)


def _root(told: Spreading | None, answer: Answer) -> tuple[str, str] | None:
    """Where what is to blame for an answer begins, in whatever instance."""
    if told is None or answer.found is None or answer.found.root is None:
        return None
    return told.root(answer.instance.name, answer.found.root.id)


def _over_all(told: Spreading | None, root: tuple[str, str] | None) -> dict[str, Any]:
    if told is None or root is None:
        return {}
    begins = {"instance": root[0], "id": f"{root[0]}:{root[1]}"}
    return {"over_all": {"root": begins, "instances": told.of(root)}}


@command.command("report")
def report(
    folder: _FOLDER,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to, .html.")],
    shared: _SHARED = None,
    through: _THROUGH = None,
    direct: _DIRECT = False,
    skew: _SKEW = 50.0,
    workers: _WORKERS = None,
    ray: RAY = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> int:
    """Write one HTML file: what was found in which instance, and the ratios of each.

    Needs the extra `report`: pip install 'hkvtool[report]'. Exits with 3 where an instance could
    not be read; the others are in the page.
    """
    from importlib.util import find_spec

    if find_spec("jinja2") is None:
        raise HkvError(
            "a report needs jinja2, which is not installed", hint="pip install 'hkvtool[report]'"
        )
    from hkvtool.fleet.merged import Merged
    from hkvtool.fleet.objects import plain
    from hkvtool.report.fleet import fleet_html
    from hkvtool.store.destination import Destination
    from hkvtool.store.exporting import writing

    # That the report could not be written in the end must not turn out after the check.
    Destination(output, force=force)
    pools = _between(shared, through, direct)
    merged = Merged(plain(folder), pools, _nanoseconds(skew))
    merged.take(_outcomes(folder, workers, ray, pools))
    failed = [about for about in merged.instances if "error" in about]
    for about in failed:
        _tell(about, about["instance"])
    with writing(output, force=force) as stream:
        stream.write(fleet_html(merged.as_json()).encode())
    print(f"{shown(output)}: {counted(len(merged.instances), 'instance')}", file=sys.stderr)
    return Exit.UNREADABLE if failed else Exit.OK


@command.command("query")
def query(
    folder: _FOLDER,
    text: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT, DESCRIBE or EXPLAIN.")],
    format: Annotated[
        sql.Format, typer.Option("--format", help="How to print rows.")
    ] = sql.Format.TABLE,
    limit: Annotated[int, typer.Option(min=0, help="Show so many rows, 0 for all.")] = LIMIT,
) -> None:
    """Ask a fleet that was ingested in SQL (DuckDB's).

    The view event_log has the events of all instances, with `instance`, `host`, `rank` and `time`
    before what it has of a single trace; `instances` lists them.
    """
    from hkvtool.fleet.asked_in_sql import FleetTables

    with FleetTables(_fleet(folder)) as tables:
        sql.print_answer(tables, text, format, limit)


def _between(
    shared: Sequence[str] | None, through: Sequence[str] | None, direct: bool
) -> frozenset[str]:
    """The pools by which instances are held against each other."""
    from hkvtool.analyzers.exchanges import BELOW, DIRECT

    both = sorted({*(shared or ())} & {*(through or ())})
    if both:
        raise HkvError(
            f"{both[0]} is either one pool to all, or each engine's own",
            hint="--shared or --through, not both",
        )
    below = {BELOW + name for name in through or ()}
    return frozenset({*(shared or ()), *below, *((DIRECT,) if direct else ())})


def _nanoseconds(skew: float) -> int:
    if math.isinf(skew):
        raise HkvError(
            "--skew is a number of milliseconds", hint="clocks so far apart order nothing"
        )
    return int(skew * 1e6)


def _fleet(folder: str) -> list[Instance]:
    from hkvtool.fleet.instances import instances

    return instances(folder)


def _outcomes(
    folder: str, workers: int | None, ray: str | None, shared: frozenset[str]
) -> Iterator[Outcome]:
    from hkvtool.fleet.asking import Check
    from hkvtool.fleet.objects import name_of

    return _asked(Check(shared), _fleet(folder), workers, ray, f"checking {name_of(folder)}")


def _asked(
    question: Callable[[Instance], T],
    fleet: Sequence[Instance],
    workers: int | None,
    ray: str | None,
    what: str,
) -> Iterator[T]:
    """The answers in the order of the instances, here or on a cluster."""
    from hkvtool.fleet.on_ray import ask_on_ray
    from hkvtool.fleet.processes import ask_here

    if ray is not None and workers is not None:
        raise HkvError("--workers is of this machine; on a cluster Ray decides")
    answers = ask_here(question, fleet, workers) if ray is None else ask_on_ray(
        question, fleet, ray
    )  # fmt: skip
    with progress(what, len(fleet)) as told:
        for number, answer in enumerate(answers, 1):
            if told is not None:
                told(number)
            yield answer


def _print_each(kept: list[Outcome], format: CheckFormat, fail_on: FailOn) -> None:
    """In the formats that know several files."""
    from hkvtool.report.checked import Checked

    checked = [Checked(o.instance.name, o.report, trouble=o.said) for o in kept]
    if format is CheckFormat.SARIF:
        from hkvtool.report.sarif import sarif

        print(sarif(checked))
    elif format is CheckFormat.JUNIT:
        from hkvtool.report.junit import junit

        print(junit(checked, fail_on.severity))
    else:
        from hkvtool.report.github import github_lines

        for one in checked:
            print("\n".join(github_lines(one)))
