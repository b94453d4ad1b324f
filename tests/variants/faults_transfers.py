"""Faults of transfers: ends, edges and components that are missing."""

from __future__ import annotations

from random import Random

from .mutation import mutation, pick, where, without
from .tape import Event


@mutation("605 305 603 602 703", tier="cpu", tight=True, requests=14)
def load_never_ends(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, where(events, "load_end"))
    return None if n is None else without(events, n)


@mutation("603 305 103 602 703", tier="cpu", tight=True, requests=14)
def load_ends_late(events: list[Event], rng: Random) -> list[Event] | None:
    """The request goes on before its load has ended."""
    n = pick(rng, where(events, "load_end"))
    if n is None:
        return None
    begin = next(
        e for e in events if e["ev"] == "load_begin" and e["handle"] == events[n]["handle"]
    )
    for m in range(n, len(events)):
        e = events[m]
        if e["ev"] == "use" and set(begin["blocks"]) & set(e["blocks"]):
            return [*events[:n], *events[n + 1 : m + 1], events[n], *events[m + 1 :]]
    return None


@mutation("103 703 709 702 603 305", tier="cpu", tight=True, streams=True, requests=14)
def load_edge_lost(events: list[Event], rng: Random) -> list[Event] | None:
    """Nobody waits for the load's stream."""
    signals = {e["event"]: e.get("actor") for e in events if e["ev"] == "signal"}
    loads = [
        n for n in where(events, "wait")
        if str(signals.get(events[n]["event"])).endswith(":load") and "actor" not in events[n]
    ]  # fmt: skip
    # Only the last one: an edge that comes later on the same lane would order the load too.
    return without(events, loads[-1]) if loads else None


@mutation("307", family="mla", tier="cpu", tight=True, layout=True, requests=14)
def component_not_stored(events: list[Event], rng: Random) -> list[Event] | None:
    """Index rows stay behind in every transfer."""
    handles = {e["handle"] for e in events if e.get("group") == "idx" and "handle" in e}
    if not any(e["ev"] == "load_begin" and e["handle"] in handles for e in events):
        return None
    return [e for e in events if e.get("handle") not in handles]
