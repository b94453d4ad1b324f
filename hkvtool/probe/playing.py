"""Sending a scenario, and what came of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from hkvtool.probe.answers import Answer, Difference, difference
from hkvtool.probe.dialect import Dialect
from hkvtool.probe.prompts import Piece
from hkvtool.probe.scenario import OTHER, Ask, Scenario
from hkvtool.probe.server import Refused


@dataclass(frozen=True)
class Compared:
    """One pair of a scenario, answered."""

    reference: str
    subject: str
    apart: Difference
    requests: tuple[str, str]
    cached: int | None
    """Prompt tokens that the server says it reused for the subject."""
    said: tuple[str, str] = ("", "")
    """The two tokens at the place where they differ."""


@dataclass
class Played:
    """A scenario as it went. `leaked`: tokens found cached where nothing may be found."""

    scenario: Scenario
    compared: list[Compared] = field(default_factory=list)
    leaked: int = 0
    sent: list[dict[str, Any]] = field(default_factory=list)
    """Of each request: its id, what was generated, what the server says was cached."""


def play(dialect: Dialect, scenario: Scenario, reset: str = "") -> Played:
    """Send a scenario with salts that nobody has used. `reset` is a path of the server that forgets
    what it has cached, for servers without salts. Raises Refused, Unreachable, Spent."""
    dialect.load.room(*scenario.cost)
    nonce = secrets.token_hex(6)
    answers: dict[str, Answer] = {}
    asks = {ask.name: ask for ask in scenario.asks}
    for group in scenario.groups:
        if reset and any(ask.salt.startswith(OTHER) for ask in group):
            dialect.server.post(reset, {}, {})
        if len(group) == 1:
            _send(dialect, group[0], asks, answers, nonce)
            continue
        with ThreadPoolExecutor(max_workers=len(group)) as pool:
            sent = [pool.submit(_send, dialect, ask, asks, answers, nonce) for ask in group]
            for one in sent:
                one.result()
    played = Played(scenario)
    for name, answer in answers.items():
        played.sent.append({"ask": name, "request": answer.request, "cached": answer.cached,
                            "tokens": list(answer.tokens)})  # fmt: skip
    for pair in scenario.pairs:
        played.compared.append(_compared(answers, pair.reference, pair.subject, pair.skip))
    played.leaked = max((answers[name].cached or 0 for name in _cold(scenario)), default=0)
    return played


def _cold(scenario: Scenario) -> list[str]:
    """The asks that can find nothing cached, unless somebody else's."""
    salts: set[str] = set()
    found = [scenario.separate] if scenario.separate else []
    for group in scenario.groups:
        found += [ask.name for ask in group if ask.salt not in salts and not ask.abort]
        salts |= {ask.salt for ask in group}
    # Where one group has a salt twice, who comes second may find what the first has left.
    twice = {a.name for g in scenario.groups for i, a in enumerate(g) if a.salt in _salts(g[:i])}
    return [name for name in found if name not in twice]


def _salts(asks: tuple[Ask, ...]) -> set[str]:
    return {ask.salt for ask in asks}


def _send(
    dialect: Dialect, ask: Ask, asks: Mapping[str, Ask], answers: dict[str, Answer], nonce: str
) -> None:
    prompt = _prompt(dialect, ask, asks, answers)
    more: dict[str, Any] = {
        "output": ask.output, "salt": f"hkv-{nonce}-{ask.salt}", "model": ask.model,
        "request": f"hkv-{nonce}-{ask.name.replace(' ', '-')}",
    }  # fmt: skip
    if ask.abort:
        dialect.ask_and_leave(prompt, **more)
    else:
        answers[ask.name] = dialect.ask(prompt, **more)


def _prompt(
    dialect: Dialect, ask: Ask, asks: Mapping[str, Ask], answers: Mapping[str, Answer]
) -> list[Piece]:
    if not ask.after:
        return list(ask.prompt)
    before = answers[ask.after]
    said: list[Piece]
    if dialect.ids:
        if not before.ids:
            raise Refused(200, "of this answer it tells no ids of tokens")
        said = list(before.ids[: ask.take or None])
    else:
        said = [before.text]
    return [*_prompt(dialect, asks[ask.after], asks, answers), *said, *ask.prompt]


def _compared(answers: Mapping[str, Answer], reference: str, subject: str, skip: int) -> Compared:
    a, b = answers[reference], answers[subject]
    apart = difference(a, b, skip)
    said = ("", "")
    if apart.token_at is not None:
        said = (_at(a, apart.token_at + skip), _at(b, apart.token_at))
    return Compared(reference, subject, apart, (a.request, b.request), b.cached, said)


def _at(answer: Answer, at: int) -> str:
    return answer.tokens[at] if at < len(answer.tokens) else "the end"
