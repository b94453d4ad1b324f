"""The transforms in the order in which they are applied, and the variants they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from .case import Case, finished
from .company import double, late
from .extra_groups import add_private_state, declare_idle_group, mirror_group
from .grow import grow_chains
from .ids import permute_ids
from .known import add_edges, imply_evidence, remember, restate_evidence, state_positions
from .lanes import default_lane, name_scheduler, split_by_step
from .load import surround
from .names import rename_all
from .order import delay_accesses, shuffle_frees, swap_neighbours
from .pools import merge_pools, split_pool
from .surface import add_clock, add_counters, add_unknown_keys, renumber_steps, shuffle_keys
from .tokens import scale_tokens
from .wording import cut_lists, drop_optional, name_pool_or_group, spell_out

Transform = Callable[[Case, Random], Case]

TRANSFORMS: dict[str, Transform] = {
    "split": split_pool,
    "merge": merge_pools,
    "grow": grow_chains,
    "scale": scale_tokens,
    "mirror": mirror_group,
    "private": add_private_state,
    "idle": declare_idle_group,
    "double": double,
    "late": late,
    "load": surround,
    "remember": remember,
    "edges": add_edges,
    "swap": swap_neighbours,
    "frees": shuffle_frees,
    "delay": delay_accesses,
    "cut": cut_lists,
    "poolwise": name_pool_or_group,
    "restate": restate_evidence,
    "imply": imply_evidence,
    "positions": state_positions,
    "drop": drop_optional,
    "spell": spell_out,
    "ids": permute_ids,
    "lanes": split_by_step,
    "device": default_lane,
    "sched": name_scheduler,
    "steps": renumber_steps,
    "names": rename_all,
    "seq": add_counters,
    "clock": add_clock,
    "unknown": add_unknown_keys,
    "keys": shuffle_keys,
}
"""By name, in the order of application: first what happens, then what it is called."""


def variant(case: Case, seed: int | str, only: list[str] | None = None) -> Case:
    """One variant of the case: the same story with another face. `none` changes nothing.

    `only` names the transforms to apply; left out, a few are drawn.
    """
    if seed == "none":
        return finished(case)
    rng = Random(f"{case.id}/{seed}")
    names = only if only is not None else _drawn(rng)
    changed = case
    for name in TRANSFORMS:
        if name in names:
            changed = TRANSFORMS[name](changed, Random(f"{case.id}/{seed}/{name}"))
    done = finished(changed)
    info = {**done.info, "id": f"{case.id}-{seed}", "transforms": names}
    return replace(done, id=f"{case.id}-{seed}", info=info)


def _drawn(rng: Random) -> list[str]:
    """Every transform alone now and then, usually several at once."""
    names = list(TRANSFORMS)
    if rng.random() < 0.2:
        return [rng.choice(names)]
    rate = rng.choice((0.2, 0.5, 0.8))
    return [n for n in names if rng.random() < rate] or [rng.choice(names)]
