"""Match and resumable ratio over time, by group, tenant, request and rule; what blocks went
through meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hkvtool.analyzers.lookups import Settled, by, by_group, by_time, summed
from hkvtool.model.findings import Ratios
from hkvtool.model.rules import RULES
from hkvtool.model.text import shown
from hkvtool.report.table import MAX_WIDTH, Line

PARTS = ("time", "group", "tenant", "request", "rule", "blocks")
"""What the ratios can be told by."""

_ROWS = 10
"""Rows of a table of names; the rest are summed."""

_BAR = 24

_HEAD = f"{'':<20}{'asked':>14}{'matched':>9}{'resumable':>11}"


@dataclass(slots=True)
class Account:
    """The lookups of a trace, and what its blocks went through; `clock` says whether times are
    nanoseconds or positions."""

    name: str
    rows: list[Settled]
    lifetimes: Mapping[str, Any]
    clock: bool
    bins: int = 10

    def as_json(self) -> dict[str, Any]:
        rows = self.rows
        return {
            "trace": {"path": self.name, "clock": "ns" if self.clock else "events"},
            "ratios": summed(rows).as_json(),
            "lookups": len(rows),
            "over_time": [
                {"from": start, "until": end, **ratios.as_json()}
                for start, end, ratios in by_time(rows, self.bins)
            ],
            "by_group": by_group(rows),
            "by_tenant": {str(k): r.as_json() for k, r in by(rows, "tenant").items()},
            "by_request": {str(k): r.as_json() for k, r in by(rows, "request").items()},
            "by_rule": _by_rule(summed(rows)),
            **self.lifetimes,
        }


def _by_rule(ratios: Ratios) -> dict[str, int]:
    found: dict[str, int] = {}
    for loss in ratios.lost_by:
        found[loss.code] = found.get(loss.code, 0) + loss.tokens
    return found


def account_lines(account: Account, width: int, parts: Sequence[str] = PARTS) -> Iterator[Line]:
    """The account as lines at most `width` wide, in the parts asked for."""
    width = max(40, min(width, MAX_WIDTH))
    total = summed(account.rows)
    lookups = f"{len(account.rows):,} lookup{'s' * (len(account.rows) != 1)}"
    yield Line(_cut(f"{shown(account.name)} · {lookups}", width), "bold")
    yield Line(_HEAD, "bold")
    yield Line(_line("all", total))
    tell = {
        "time": _time, "group": _groups, "tenant": _tenants, "request": _requests, "rule": _rules,
        "blocks": _blocks,
    }  # fmt: skip
    for part in parts:
        lines = list(tell[part](account))
        if lines:
            yield Line("")
        for line in lines:
            yield Line(_cut(line.text, width), line.style)


def _line(label: str, ratios: Ratios, bar: bool = False) -> str:
    text = f"{label[:20]:<20}{ratios.asked:>14,}{_share(ratios.matched, ratios.asked):>9}"
    text += f"{_share(ratios.resumable, ratios.asked):>11}"
    return text + (f"  {_bar(ratios)}" if bar else "")


def _bar(ratios: Ratios) -> str:
    """Resumable full, matched and lost half, the rest empty."""
    if not ratios.asked:
        return ""
    good = round(_BAR * ratios.resumable / ratios.asked)
    matched = max(good, round(_BAR * ratios.matched / ratios.asked))
    return "█" * good + "░" * (matched - good) + "·" * (_BAR - matched)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _time(account: Account) -> Iterator[Line]:
    parts = by_time(account.rows, account.bins)
    if not parts:
        return
    yield Line("over time " + _HEAD[10:] + "  █ resumable ░ lost", "bold")
    first = parts[0][0]
    for start, _, ratios in parts:
        label = f"{(start - first) / 1e9:.3f} s" if account.clock else f"event {start:,}"
        yield Line(_line(label, ratios, bar=True))


def _groups(account: Account) -> Iterator[Line]:
    found = by_group(account.rows)
    if not found:
        return
    yield Line(f"{'by group':<20}{'asked':>14}{'hit':>9}{'cost others':>15}", "bold")
    for name, told in sorted(found.items(), key=lambda item: -item[1]["lost"]):
        text = f"{shown(name)[:20]:<20}{told['asked']:>14,}{_share(told['hit'], told['asked']):>9}"
        yield Line(text + f"{told['lost']:>15,}")


def _named(title: str, found: Mapping[Any, Ratios]) -> Iterator[Line]:
    """Who lost most comes first."""
    yield Line(title + _HEAD[len(title) :] + f"{'lost':>12}", "bold")
    order = sorted(found.items(), key=lambda item: item[1].resumable - item[1].matched)
    for name, ratios in order[:_ROWS]:
        lost = ratios.matched - ratios.resumable
        yield Line(_line("none" if name is None else shown(name), ratios) + f"{lost:>12,}")
    rest = [ratios for _, ratios in order[_ROWS:]]
    if rest:
        yield Line(_line(f"{len(rest):,} others", _sum(rest)))


def _sum(parts: Iterable[Ratios]) -> Ratios:
    total = Ratios()
    for ratios in parts:
        total.asked += ratios.asked
        total.matched += ratios.matched
        total.resumable += ratios.resumable
    return total


def _tenants(account: Account) -> Iterator[Line]:
    found = by(account.rows, "tenant")
    if set(found) - {None}:
        yield from _named("by tenant", found)


def _requests(account: Account) -> Iterator[Line]:
    found = by(account.rows, "request")
    if found:
        yield from _named("by request", found)


def _rules(account: Account) -> Iterator[Line]:
    total = summed(account.rows)
    if not total.lost_by:
        return
    yield Line(f"{'lost by rule':<34}{'group':<20}{'tokens':>14}", "bold")
    for loss in total.lost_by[:_ROWS]:
        name = f"{loss.code} {RULES[loss.code].name}"
        yield Line(f"{name:<34}{shown(loss.group or '-')[:19]:<20}{loss.tokens:>14,}")


def _blocks(account: Account) -> Iterator[Line]:
    told = account.lifetimes
    if told["blocks"]:
        title = "blocks"
        yield Line(
            f"{title:<16}{'given out':>10}{'hit again':>11}{'held p50':>11}{'p90':>9}"
            f"{'kept p50':>11}{'p90':>9}", "bold",
        )  # fmt: skip
    for life in told["blocks"]:
        spans = [life[key][q] for key in ("held", "kept") for q in ("p50", "p90")]
        cells = [_span(value, account.clock) for value in spans]
        yield Line(
            f"{shown(life['group'])[:16]:<16}{life['allocated']:>10,}{life['hit_again']:>11,}"
            f"{cells[0]:>11}{cells[1]:>9}{cells[2]:>11}{cells[3]:>9}"
        )
    if told["forms"]:
        yield Line(f"{'in form':<28}{'mean blocks':>14}{'peak':>10}{'at event':>12}", "bold")
    for form in told["forms"]:
        label = f"{form['form']}, {form['state']}"
        yield Line(
            f"{label:<28}{form['mean_blocks']:>14,.1f}{form['peak_blocks']:>10,}"
            f"{form['peak_at']:>12,}"
        )
    yield from _moving(told)


def _moving(told: Mapping[str, Any]) -> Iterator[Line]:
    recovering, moved = told["recovering"], told["migration"]
    if recovering["peak_blocks"] or recovering["cap"] is not None:
        cap = "no cap" if recovering["cap"] is None else f"cap {recovering['cap']:,}"
        yield Line(
            f"recovering at once: {recovering['mean_blocks']:,.1f} on average, peak "
            f"{recovering['peak_blocks']:,} at event {recovering['peak_at']:,} ({cap})"
        )
    if moved["stores"] or moved["loads"]:
        cap = "no cap" if moved["cap"] is None else f"cap {moved['cap']:,}"
        yield Line(
            f"moved: {moved['bytes_out']:,} bytes out in {moved['stores']:,} stores, "
            f"{moved['bytes_in']:,} in by {moved['loads']:,} loads"
        )
        yield Line(
            f"in flight at once: peak {moved['peak_bytes_in_flight']:,} bytes at event "
            f"{moved['peak_at']:,} ({cap})"
        )


def _span(value: int | None, clock: bool) -> str:
    if value is None:
        return "-"
    return f"{value / 1e9:.3g} s" if clock else f"{value:,}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
