"""What a server says of itself, and what can be seen of it, before anything is compared."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from math import gcd
from typing import Any

from hkvtool.model.errors import Exit, HkvError
from hkvtool.probe.dialect import Dialect
from hkvtool.probe.load import Load, Spent
from hkvtool.probe.prompts import fresh
from hkvtool.probe.server import Refused, Server

_CACHE_INFO = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_HITS = re.compile(
    r"^(?:vllm:(?:external_)?prefix_cache_hits|sglang:cached_tokens)(?:_total)?(?:\{[^\n]*\})? "
    r"([0-9.e+]+)\s*$", re.MULTILINE,
)  # fmt: skip
_LABEL = re.compile(r'(\w+)="([^"]*)"')

SEPARATE, SHARED, UNSEEN, REFUSED = "separate", "shared", "unseen", "refused"


@dataclass
class Survey:
    """`salts`: whether they are seen to separate. `block`, `cache`: tokens, 0 where unknown."""

    model: str
    limit: int = 0
    """Tokens that a prompt and its answer may have together."""
    adapters: tuple[str, ...] = ()
    salts: str = UNSEEN
    block: int = 0
    cache: int = 0


def find_model(server: Server, asked: str) -> Survey:
    """What `/v1/models` tells. Raises HkvError where there is no model to ask."""
    try:
        data = server.get("/v1/models")
        found = [m for m in data["data"] if isinstance(m, dict) and "id" in m]
    except (Refused, TypeError, KeyError) as e:
        if asked:
            return Survey(asked)
        raise HkvError(
            f"the server lists no models: {e}", where=server.url, hint="name one with --model",
            exit_code=Exit.UNREADABLE,
        ) from None  # fmt: skip
    if not found and not asked:
        raise HkvError("the server has no model", where=server.url, exit_code=Exit.UNREADABLE)
    own = next((m for m in found if m["id"] == asked), {"id": asked} if asked else found[0])
    names = {str(own["id"]), str(own.get("root"))}
    adapters = tuple(str(m["id"]) for m in found if m.get("parent") and str(m["parent"]) in names)
    return Survey(str(own["id"]), _count(own.get("max_model_len")), adapters)


def look(survey: Survey, dialect: Dialect, rng: random.Random, vocabulary: tuple[int, int]) -> None:
    """Ask for one prompt three times: what of it is cached when, and by which unit."""
    _look_at_metrics(survey, dialect.server)
    room = survey.limit or 512
    units: list[int] = []
    for length in (min(600, room // 2), min(437, room // 3)):
        prompt = fresh(rng, length, vocabulary)
        salt = f"hkv-look-{rng.getrandbits(48):x}"
        first = dialect.ask(prompt, salt=salt, output=1)
        again = dialect.ask(prompt, salt=salt, output=1)
        if first.prompt_tokens and not dialect.ids:
            length = first.prompt_tokens
        units.append(again.cached or 0)
        if "cache_salt" not in dialect.keys:
            survey.salts = REFUSED
        elif again.cached and survey.salts != SHARED:
            other = dialect.ask(prompt, salt=f"{salt}-other", output=1)
            survey.salts = SHARED if other.cached else SEPARATE
    if not survey.block:
        unit = gcd(*units)
        survey.block = unit if 1 < unit <= 512 else 0


def _look_at_metrics(survey: Survey, server: Server) -> None:
    """vLLM tells the size of its cache there."""
    try:
        text = server.get("/metrics")
    except (Refused, HkvError):
        return
    found = _CACHE_INFO.search(text) if isinstance(text, str) else None
    if found:
        labels = dict(_LABEL.findall(found[1]))
        survey.block = _count(labels.get("block_size"))
        # Groups share the blocks, so that fewer tokens fit than blocks times their size.
        survey.cache = _count(labels.get("kv_cache_size_tokens")) or (
            survey.block * _count(labels.get("num_gpu_blocks"))
        )


def hits(server: Server) -> float | None:
    """Tokens that the server has reused since it began, where its metrics count them."""
    try:
        text = server.get("/metrics")
        found = _HITS.findall(text) if isinstance(text, str) else []
        return sum(map(float, found)) if found else None
    except (Refused, HkvError, ValueError):
        return None


def _count(value: Any) -> int:
    try:
        return max(0, int(value))
    except (TypeError, ValueError, OverflowError):
        return 0


def begin(
    server: Server, load: Load, model: str, vocabulary: tuple[int, int], *, salts: bool = True
) -> tuple[Survey, Dialect]:
    """Find out whom we speak to. Raises HkvError."""
    rng = random.Random()
    survey = find_model(server, model)
    dialect = Dialect(server, load, survey.model)
    try:
        dialect.learn(fresh(rng, 8, vocabulary))
        if not salts:
            dialect.keys.discard("cache_salt")
        look(survey, dialect, rng, vocabulary)
    except Spent as e:
        raise HkvError(f"nothing was compared: {e}", hint="raise the limit") from None
    except Refused as e:
        raise HkvError(
            f"the server refuses an ordinary prompt: {e.status}, {e}", where=server.url,
            exit_code=Exit.UNREADABLE,
        ) from None  # fmt: skip
    return survey, dialect
