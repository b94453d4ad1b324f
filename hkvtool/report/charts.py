"""The charts of a report, as Vega-Lite specifications made with Altair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from hkvtool.analyzers.lookups import Settled, by_group, by_time
from hkvtool.report.heat import Heat

_FORMS = {
    "compressed": "#4269d0", "tail": "#efb118", "swa": "#3ca951", "indexer": "#a463f2",
    "recurrent": "#ff725c", "on_disk": "#9498a0",
}  # fmt: skip
"""By form; distinguishable with the usual colour blindnesses, and named in every tooltip."""

_STATES = {"held": 1.0, "cached": 0.55, "recovering": 0.25}
_RATIOS = {"match": "#9498a0", "resumable": "#4269d0"}
_BINS = 60

_data: Any = alt.Data
"""Altair does not say of this what it takes."""


def time_unit(clock: bool) -> tuple[float, str]:
    """What to divide the trace's time by, and what to call it."""
    return (1e9, "seconds") if clock else (1.0, "position")


def ratios_over_time(rows: Sequence[Settled], start: int, clock: bool) -> dict[str, Any]:
    """Match and resumable ratio in stretches of time."""
    unit, title = time_unit(clock)
    values = [
        {"t": (first - start) / unit, "what": what, "ratio": 100 * tokens / ratios.asked}
        for first, _, ratios in by_time(rows, _BINS) if ratios.asked
        for what, tokens in (("match", ratios.matched), ("resumable", ratios.resumable))
    ]  # fmt: skip
    return _spec(
        alt.Chart(_data(values=values))
        .mark_line(interpolate="step-after", point=True)
        .encode(
            x=alt.X("t:Q", title=title),
            y=alt.Y("ratio:Q", title="% of the tokens asked for", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color("what:N", title="ratio", scale=_scale(_RATIOS)),
            tooltip=[alt.Tooltip("what:N"), alt.Tooltip("t:Q", format=".3f", title=title),
                     alt.Tooltip("ratio:Q", format=".1f", title="%")],
        ).properties(height=220),
        "Match ratio and resumable ratio over time",
    )  # fmt: skip


def hits_by_group(rows: Sequence[Settled]) -> dict[str, Any]:
    """Tokens that each group hit, and those that were lost for want of it."""
    values = [
        {"group": group, "what": what, "tokens": tokens}
        for group, sums in by_group(rows).items() for what, tokens in sums.items()
    ]  # fmt: skip
    return _spec(
        alt.Chart(_data(values=values)).mark_bar().encode(
            x=alt.X("tokens:Q", title="tokens"), y=alt.Y("group:N", title=None),
            yOffset="what:N", color=alt.Color("what:N", title=None),
            tooltip=["group:N", "what:N", alt.Tooltip("tokens:Q", format=",")],
        ).properties(height=60 + 40 * len(by_group(rows))),
        "Tokens by group",
    )  # fmt: skip


def block_map(heat: Heat, pool: str, clock: bool) -> dict[str, Any]:
    """Which form each stretch of a pool holds over time; wheel and drag zoom and move."""
    unit, title = time_unit(clock)
    width = heat.width / unit
    values = [
        {"t": cell.column * width, "u": (cell.column + 1) * width, "b": cell.first,
         "c": cell.last + 1, "form": cell.form, "state": cell.state, "n": cell.holding}
        for cell in heat.cells if cell.pool == pool
    ]  # fmt: skip
    return _spec(
        alt.Chart(_data(values=values)).mark_rect().encode(
            x=alt.X("t:Q", title=title, scale=alt.Scale(nice=False)), x2="u:Q",
            y=alt.Y("b:Q", title=f"block of {pool}", scale=alt.Scale(nice=False, reverse=True)),
            y2="c:Q",
            color=alt.Color("form:N", scale=_scale(_FORMS)),
            opacity=alt.Opacity(
                "state:O", scale=_scale(_STATES), sort=list(_STATES),
                legend=alt.Legend(symbolFillColor="#808890"),
            ),
            tooltip=["form:N", "state:N", alt.Tooltip("n:Q", title="blocks that hold something"),
                     alt.Tooltip("b:Q", title="from block"), alt.Tooltip("t:Q", format=".3f")],
        ).properties(height=300).interactive(),
        f"What the blocks of {pool} are over time",
    )  # fmt: skip


def _scale(values: dict[str, Any]) -> alt.Scale:
    return alt.Scale(domain=list(values), range=list(values.values()))


def _spec(chart: alt.Chart, description: str) -> dict[str, Any]:
    chart = chart.properties(width="container", description=description)
    spec: dict[str, Any] = chart.to_dict()
    return spec
