"""DeepSeek-V4's pools in SGLang: what lies in a page, where, and that it comes and goes with it."""

from __future__ import annotations

from typing import Any

import pytest

from engines_sglang.sglang_cache import CORES
from engines_sglang.sglang_requests import begin, end
from engines_sglang.sglang_state import Folded, differences
from engines_sglang.sglang_v4 import PAGE, V4Engine, V4Load
from engines_sglang.test_sglang_state import quiet
from hkvtool.recorder.sglang.hooks import Hooks

Watched = tuple[Folded, Hooks]

HEAD = [n % 7 + 1 for n in range(2 * PAGE)]
LEFT, RIGHT = [*HEAD, *range(9, 9 + PAGE)], [*HEAD, *range(300, 300 + PAGE)]


def drive(watched: Watched, core: str, seed: int, steps: int) -> V4Load:
    folded, hooks = watched
    engine = V4Engine(core)
    load, state = V4Load(engine, seed), hooks.caches[-1]
    for number in range(steps):
        kind = load.step()
        wrong = list(differences(folded, engine.cache, state.pools))
        refs, _ = folded.pages("c128_state")
        held = {row for row, count in refs.items() if count}
        taken = set(range(1, 7)) - set(engine.cache.req_to_token_pool.free_slots)
        assert not wrong and held == taken, (number, kind, wrong[:3], held, taken)
    engine.cache.sanity_check()
    quiet(folded)
    return load


@pytest.mark.parametrize("core", CORES)
def test_random_load(core: str, watched: Watched) -> None:
    load = drive(watched, core, 1, 60)
    assert {"begin", "decode", "end", "evict", "evict_window"} <= set(load.done)


@pytest.mark.soak
@pytest.mark.parametrize("core", CORES)
def test_long_random_load(core: str, watched: Watched) -> None:
    drive(watched, core, 2, 5000)


def test_bytes_of_each_part(watched: Watched) -> None:
    """As worked out by hand: 584 bytes an entry of which 8 are scales, pages a multiple of 576."""
    V4Engine("rust")
    told = {e["group"]: e for e in watched[0].events if e["ev"] == "group"}
    laid = {name: (e.get("ratio", 1), e["layout"]["page_bytes"]) for name, e in told.items()}
    assert laid == {
        "full": (4, 37440), "full.c128": (128, 1728), "full.indexer": (4, 8448),
        "swa": (1, 149760), "swa.c4_state": (1, 65536), "swa.c4_indexer_state": (1, 16384),
        "c128_state": (1, 524288),
    }  # fmt: skip
    assert told["full"]["layout"]["row_bytes"] == 584 and told["full"]["layout"]["scale_bytes"] == 8
    assert told["full.indexer"]["serves"] == "full"
    assert told["swa.c4_indexer_state"]["serves"] == "full.indexer"
    assert told["c128_state"]["serves"] == "full.c128"


@pytest.mark.parametrize("core", CORES)
def test_parts_go_with_their_page(core: str, watched: Watched) -> None:
    """A hit on compressed histories that no window, and no open unit, lets anybody go on from."""
    folded, hooks = watched
    engine = V4Engine(core)
    for number, tokens in enumerate((HEAD, LEFT, RIGHT)):
        end(engine, begin(engine, f"r{number}", [*tokens, 7]))
    engine.match(LEFT)
    engine.match(RIGHT)
    assert engine.evict(swa=PAGE).swa_num_tokens_evicted == PAGE
    end(engine, begin(engine, "new", [*HEAD[:PAGE], 600, 601]))
    assert not list(differences(folded, engine.cache, hooks.caches[0].pools))
    report = folded.checked()
    lost: dict[Any, Any] = {f.group: (f.code, f.actual["lost"]) for f in report.findings}
    assert lost["swa"] == ("HKV308", PAGE) and {code for code, _ in lost.values()} == {"HKV308"}
    assert not {"HKV401", "HKV402", "HKV403", "HKV404"} & set(report.not_evaluable)
