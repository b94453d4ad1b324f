"""The answer about one request on one screen: the verdict first, then what it rests on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hkvtool.analyzers.layers import LAYERS, Passage, Passed
from hkvtool.analyzers.provenance import Attempt, Source
from hkvtool.analyzers.taint import Spread
from hkvtool.analyzers.verdict import SAID, Verdict, Why
from hkvtool.model.event import Event
from hkvtool.model.rules import RULES
from hkvtool.model.text import compact, event_line, shown
from hkvtool.report.table import MAX_WIDTH, Line

if TYPE_CHECKING:
    from hkvtool.model.findings import Finding

SCREEN = 23
"""Lines of a screen of 24, with one left for the prompt."""

_STYLES = {
    Verdict.RESUMED_WRONGLY: "bold red",
    Verdict.READ_WRONGLY: "bold red",
    Verdict.RECOMPUTED: "bold cyan",
    Verdict.EXONERATED: "bold green",
    Verdict.INCONCLUSIVE: "bold yellow",
}

_CELLS = {
    Passed.YES: "ok",
    Passed.STOPPED: "stopped",
    Passed.MISSED: "MISSED",
    Passed.UNKNOWN: "?",
    Passed.NOT_REACHED: "-",
}

_LABEL = 12


@dataclass(slots=True)
class _Part:
    """Lines that belong together, of which at least `least` stay when room is short."""

    lines: list[Line]
    least: int = 99
    what: str = ""
    cut: int = field(default=0)

    def shorten(self) -> bool:
        """Leave out one more line; False where nothing may go."""
        if len(self.lines) - self.cut <= self.least:
            return False
        # The line that says how many are missing takes a place of its own.
        self.cut += 1 if self.cut else 2
        return True

    def shown(self) -> list[Line]:
        if not self.cut:
            return self.lines
        kept = self.lines[: len(self.lines) - self.cut]
        return [*kept, Line(f"  {'':<{_LABEL}}... {self.cut} more {self.what} (--all)")]


def why_lines(
    why: Why,
    events: Mapping[int, Event],
    width: int,
    *,
    name: str = "",
    facts: Sequence[str] = (),
    height: int | None = SCREEN,
) -> list[Line]:
    """The answer as lines at most `width` wide, at most `height` of them where that is given.

    `events` are those that the finding names; `facts` what else is known of the request.
    """
    width = max(40, min(width, MAX_WIDTH))
    parts = list(_parts(why, events, width, name, facts))
    order = sorted((p for p in parts if p.least < 99), key=lambda p: _FIRST_CUT.index(p.what))
    while height is not None and sum(len(p.shown()) for p in parts) > height:
        if not any(part.shorten() for part in order):
            break
    return [line for part in parts for line in part.shown()]


_FIRST_CUT = ("requests", "blocks", "groups", "events", "lines", "findings", "rules")
"""What gives way first where a screen is too small."""


def _parts(
    why: Why, events: Mapping[int, Event], width: int, name: str, facts: Sequence[str]
) -> Iterator[_Part]:
    yield _Part([Line(_cut(_heading(why, name, facts), width), "bold")])
    yield _Part([Line(_verdict(why), _STYLES[why.verdict])])
    yield _Part(list(_text("", shown(why.sentence), width)), 2, "lines")
    if why.finding is not None:
        told = why.finding
        yield _Part(list(_moments(told, events, width)), 2, "events")
    attempt = _telling(why)
    if attempt is not None:
        yield _Part(list(_row("resume", _resumed(attempt), width)))
        if attempt.best or attempt.at:
            yield _Part([Line(_columns(attempt))])
            yield _Part(list(_groups(attempt, width)), 2, "groups")
        for passage in attempt.groups:
            if passage.gone and attempt.thrown_away:
                yield _Part(list(_row("lacks", f"{passage.group}: {passage.gone}", width)))
                break
    yield _Part(list(_sources(why.sources, width)), 2, "blocks")
    if why.spread is not None:
        yield _Part(list(_blast(why, why.spread, width)))
        yield _Part(list(_purge(why.spread, width)))
    beside = [f for f in why.beside if f.code != "HKV308"]
    if beside:
        yield _Part(list(_beside(beside, width)), 1, "findings")
    yield _Part(list(_coverage(why, width)), 2, "rules")
    if why.finding is not None:
        yield _Part(list(_text("fix", why.finding.fix, width))[:2])
    elif why.verdict is Verdict.EXONERATED:
        hand = "hand it on to the kernels or the quantisation, with this coverage"
        yield _Part(list(_row("next", hand, width)))
    elif why.verdict is Verdict.INCONCLUSIVE:
        hand = "record again with larger rings: what was lost may be the fault"
        yield _Part(list(_row("next", hand, width)))


def _heading(why: Why, name: str, facts: Sequence[str]) -> str:
    said = [f"request {shown(why.request)}", *map(shown, facts)]
    if why.report is not None and why.report.trace.get("engine"):
        said.append(shown(why.report.trace["engine"]))
    said.append(f"events {why.span[0]} to {why.span[1]}")
    if name:
        said.append(shown(name))
    return " · ".join(said)


def _verdict(why: Why) -> str:
    text = SAID[why.verdict]
    if why.finding is not None:
        root = why.finding if why.root is None else why.root
        text += f": {why.finding.code} {RULES[why.finding.code].name} ({why.finding.id}"
        text += f", from {root.id} {root.code})" if root is not why.finding else ")"
    elif why.verdict is Verdict.EXONERATED:
        text += f" for this request, coverage {why.coverage.percent:.0f} %"
    elif why.verdict is Verdict.RECOMPUTED:
        limiting = next((a.limiting for a in why.attempts if a.thrown_away), None)
        if limiting is not None:
            text += f", because of group {shown(limiting.group)}"
    return text


def _telling(why: Why) -> Attempt | None:
    """The resume that the verdict is about, or else the last one that had anything to go on."""
    if why.finding is not None:
        at = max((p for p in (why.finding.use, why.finding.check) if p), default=0)
        before = [a for a in why.attempts if (a.lookup or a.resume or 0) <= at]
        if before:
            return before[-1]
    cut = [a for a in why.attempts if a.thrown_away]
    reused = [a for a in why.attempts if a.at]
    some = cut or reused or why.attempts
    return some[0] if some else None


def _resumed(attempt: Attempt) -> str:
    said = f"asked {attempt.asked:,}" if attempt.asked else "no lookup"
    if attempt.lookup is not None:
        of = f" ({shown(attempt.of)})" if attempt.of else ""
        said += f", longest hit {attempt.best:,}{of}"
    if attempt.at is None:
        return said + ", no resume recorded"
    said += f", went on from {attempt.at:,}"
    if attempt.thrown_away:
        said += f": {attempt.thrown_away:,} lost"
    return said


def _columns(attempt: Attempt) -> str:
    wide = max((len(shown(p.group)) for p in attempt.groups), default=5)
    short = ("whole block", "kernel ABI", "intersection", "alignment")
    assert len(short) == len(LAYERS)
    return (
        f"  {'group':<{max(_LABEL, wide)}}{'hit':>8}  "
        + "  ".join(f"{s:<12}" for s in short).rstrip()
    )


def _groups(attempt: Attempt, width: int) -> Iterator[Line]:
    """Groups that fared alike on one line, those that did not pass first."""
    alike: dict[tuple[object, ...], list[Passage]] = {}
    for p in sorted(attempt.groups, key=lambda p: (p.stopped_by is None, not p.codes)):
        alike.setdefault((p.hit, *p.layers, *p.codes), []).append(p)
    wide = max((len(shown(p.group)) for p in attempt.groups), default=5)
    for passages in alike.values():
        first = passages[0]
        hit = "-" if first.hit is None else f"{first.hit:,}"
        cells = "  ".join(f"{_cell(first, i):<12}" for i in range(len(LAYERS))).rstrip()
        text = f"  {shown(first.group):<{max(_LABEL, wide)}}{hit:>8}  {cells}"
        yield Line(_cut(text, width), "red" if first.codes else "")
        if len(passages) > 1:
            names = ", ".join(shown(p.group) for p in passages[1:])
            yield Line(_cut(f"    and {names}", width))


def _cell(passage: Passage, layer: int) -> str:
    passed = passage.layers[layer]
    text = _CELLS[passed]
    if passed is Passed.MISSED and passage.codes:
        text += f" {passage.codes[0][3:]}"
    return text


def _moments(finding: Finding, events: Mapping[int, Event], width: int) -> Iterator[Line]:
    for pos in sorted({*finding.events, *(p for p in (finding.check, finding.use) if p)}):
        label = {finding.check: "check", finding.use: "use"}.get(pos, "")
        event = events.get(pos)
        text = f"{pos:>5}  {event_line(event) if event is not None else ''}"
        yield Line(_cut(f"  {label:<{_LABEL}}{text}", width))


def _sources(sources: Sequence[Source], width: int) -> Iterator[Line]:
    """Provenance: runs of blocks of one origin, a line each."""
    runs: list[list[Source]] = []
    for source in sorted(sources, key=lambda s: (s.group, s.tokens or (0, 0))):
        if runs and _alike(runs[-1][-1], source):
            runs[-1].append(source)
        else:
            runs.append([source])
    for i, run in enumerate(runs):
        yield from _row("" if i else "reused", _origin(run), width, cut=True)


def _alike(one: Source, other: Source) -> bool:
    same = ("group", "pool", "writer", "tier", "empty", "known")
    if any(getattr(one, name) != getattr(other, name) for name in same):
        return False
    return (one.loaded is None) == (other.loaded is None)


def _origin(run: Sequence[Source]) -> str:
    first, last = run[0], run[-1]
    said = f"{shown(first.group)} {shown(first.pool)}:{compact([s.block for s in run])[1:-1]}"
    if first.tokens and last.tokens:
        said += f", tokens {first.tokens[0]} to {last.tokens[1]}"
    if not first.known:
        return said + ": its state is not known"
    if first.writer is not None:
        said += f": {shown(first.writer)}'s"
        if first.loaded is None:
            said += f", {_at('written', [s.written for s in run])}"
    elif first.empty:
        said += (
            f": nothing was written in it since it was allocated (generation {first.generation})"
        )
    elif first.loaded is None:
        said += ": from before the recording"
    else:
        said += ":"
    if any(s.published is not None for s in run):
        said += f", {_at('published', [s.published for s in run])}"
    if first.loaded is not None:
        peers = [s.peer for s in run if s.peer is not None]
        tier = shown(first.tier) if first.tier else "a lower tier"
        place = f"{tier}:{compact(peers)[1:-1]}" if peers else tier
        said += f", {_at('loaded', [s.loaded for s in run])} from {place}"
        if any(s.stored is not None for s in run):
            said += f" ({_at('stored', [s.stored for s in run])})"
    return said.replace(":,", ":")


def _at(verb: str, positions: Sequence[int | None]) -> str:
    known = sorted({p for p in positions if p is not None})
    if not known:
        return verb
    return f"{verb} {known[0]}" if len(known) == 1 else f"{verb} {known[0]} to {known[-1]}"


def _blast(why: Why, spread: Spread, width: int) -> Iterator[Line]:
    others = {n: p for n, p in (spread.victims | spread.readers).items() if n != why.request}
    said = "nobody else read it"
    if others:
        names = sorted(others, key=lambda n: others[n])
        said = f"{len(names)} other request{'s' * (len(names) > 1)} read bad content: "
        said += ", ".join(f"{shown(n)} ({others[n]})" for n in names)
    copies = {(c.pool, b) for c in spread.copies for b in c.blocks}
    copies_of = sorted({c.pool for c in spread.copies})
    if spread.copies:
        said += (
            f"; {len(copies) or len(spread.copies)} copies to {', '.join(map(shown, copies_of))}"
        )
    else:
        said += "; no copy of it was made"
    yield from list(_text("blast", said, width))[:2]


def _purge(spread: Spread, width: int) -> Iterator[Line]:
    said = []
    for (pool, medium), blocks in sorted(spread.blocks.items()):
        kind = "files" if medium in ("disk", "remote") else "blocks"
        said.append(f"{kind} {shown(pool)}:{compact(sorted(blocks))[1:-1]}")
    if spread.hashes:
        some = list(spread.hashes)
        text = ", ".join(shown(h)[:12] for h in some[:4])
        said.append(f"hashes {text}" + (f", … ({len(some)})" if len(some) > 4 else ""))
    yield from list(_text("purge", "; ".join(said) or "nothing of it is left", width))[:2]


def _beside(findings: Sequence[Finding], width: int) -> Iterator[Line]:
    for i, f in enumerate(findings):
        text = f"{f.id} {f.code} {RULES[f.code].name}: {shown(f.message)}"
        yield from _row("" if i else "beside it", text, width, cut=True)


def _coverage(why: Why, width: int) -> Iterator[Line]:
    c = why.coverage
    reads = f"{c.reads:,} of {c.of_reads:,} block reads known" if c.of_reads else "no read listed"
    said = f"{c.percent:.0f} % ({c.rules} of {c.of_rules} rules evaluable, {reads})"
    yield from _row("coverage", said, width)
    if why.lost:
        yield from _row("lost", f"events were lost before {compact(why.lost)[1:-1]}", width)
    by_need: dict[tuple[str, ...], list[str]] = {}
    for code, needs in c.not_evaluable.items():
        by_need.setdefault(tuple(needs), []).append(code[3:])
    lacking = [f"{' '.join(codes)} ({' and '.join(needs)})" for needs, codes in by_need.items()]
    if lacking:
        yield from _text("not judged", "HKV " + "; ".join(lacking), width)


def _row(label: str, text: str, width: int, *, cut: bool = False) -> Iterator[Line]:
    if cut:
        yield Line(_cut(f"  {label:<{_LABEL}}{text}", width))
    else:
        yield from _text(label, text, width)


def _text(label: str, text: str, width: int) -> Iterator[Line]:
    head = f"  {label:<{_LABEL}}" if label else "  "
    lines = textwrap.wrap(
        text, width - len(head), break_long_words=True, break_on_hyphens=False
    ) or [""]  # fmt: skip
    for i, line in enumerate(lines):
        yield Line((head if i == 0 else " " * len(head)) + line)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
