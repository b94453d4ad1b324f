"""Which bytes an event touches."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.model.event import Event
from hkvtool.state.accesses import Access, Span, accesses
from hkvtool.state.declarations import Declarations

POOLS = (("gpu", "gpu"), ("cpu", "cpu"), ("far", "remote"))


def _event(ev: str, **keys: Any) -> Event:
    event = Event.of(1, {"ev": ev, **keys})
    assert event.problem is None
    return event


@pytest.fixture
def declared() -> Declarations:
    """Two components in one table, a window group of its own, and a lower tier without groups."""
    found = Declarations()
    for pool, medium in POOLS:
        found.pool(_event("pool", pool=pool, medium=medium, blocks=64))
    for group, form, table in (
        ("kv", "compressed", "t"),
        ("ix", "indexer", "t"),
        ("w", "swa", "w"),
    ):
        found.group(
            _event("group", group=group, form=form, pool="gpu", block_tokens=16, table=table)
        )
    return found


def one(declared: Declarations, ev: str, **keys: Any) -> Access:
    (access,) = accesses(_event(ev, **keys), declared)
    return access


def two(declared: Declarations, ev: str, **keys: Any) -> tuple[Access, Access]:
    first, second = accesses(_event(ev, **keys), declared)
    return first, second


@pytest.mark.parametrize(
    ("ev", "keys", "write"),
    [
        ("write", {"group": "kv", "tokens": [0, 16]}, True),
        ("seal", {"group": "kv", "version": 1}, True),
        ("index", {"group": "ix", "version": 1, "kv_version": 1}, True),
        ("zero", {"group": "kv"}, True),
        ("use", {"group": "kv"}, False),
    ],
)
def test_kernels_touch_the_blocks_they_name(
    declared: Declarations, ev: str, keys: dict[str, Any], write: bool
) -> None:
    access = one(declared, ev, blocks=[4], **keys)
    assert access.write is write
    assert access.span is Span.LANE
    assert (access.pool, access.places) == (declared.pools["gpu"], (4,))


@pytest.mark.parametrize("ev", ["alloc", "free", "publish", "pin"])
def test_book_keeping_touches_nothing(declared: Declarations, ev: str) -> None:
    keys = {"hashes": ["a"]} if ev == "publish" else {}
    assert not accesses(_event(ev, group="kv", blocks=[4], **keys), declared)


def test_a_store_reads_here_and_writes_there(declared: Declarations) -> None:
    near, far = two(
        declared, "store_begin", handle="h", group="kv", blocks=[4, 5], to="cpu", peer=[8, 9]
    )
    assert (near.write, near.pool, near.places) == (False, declared.pools["gpu"], (4, 5))
    assert (far.write, far.pool, far.places) == (True, declared.pools["cpu"], (8, 9))
    assert near.span is far.span is Span.TRANSFER


def test_a_load_reads_there_and_writes_here(declared: Declarations) -> None:
    keys: dict[str, Any] = {"handle": "h", "group": "kv", "blocks": [4], "from": "cpu"}
    far, near = two(declared, "load_begin", peer=[8], **keys)
    assert (far.write, far.places, near.write, near.places) == (False, (8,), True, (4,))
    assert one(declared, "load_begin", **keys).write


def test_a_copy_reads_and_writes_groups_of_their_own(declared: Declarations) -> None:
    source, target = two(declared, "copy", src=[1], dst=[2], src_group="kv", dst_group="w")
    assert (source.write, source.group, source.places) == (False, declared.groups["kv"], (1,))
    assert (target.write, target.group, target.places) == (True, declared.groups["w"], (2,))
    whole, _ = two(declared, "copy", src=[1], dst=[2], pool="gpu")
    assert whole.group is None
    assert whole.pool is declared.pools["gpu"]


def test_the_map_says_where_a_logical_block_is_unless_the_event_does(
    declared: Declarations,
) -> None:
    declared.pools["gpu"].map.update({90: 7, 7: 90})
    write = one(declared, "write", group="kv", blocks=[90, 9], tokens=[0, 32])
    assert (write.places, write.blocks) == ((7, 9), (90, 9))
    assert one(declared, "use", group="kv", blocks=[90, 9], index=[12, 9]).places == (12, 9)


def test_padding_and_unknown_places_are_left_out(declared: Declarations) -> None:
    assert one(declared, "use", group="kv", blocks=[-1, 3]).places == (3,)
    assert not accesses(_event("use", group="kv", blocks=[-1]), declared)
    assert not accesses(_event("use", group="nobody", blocks=[3]), declared)
    assert not accesses(Event.of(1, {"ev": "use", "group": "kv", "blocks": "x"}), declared)


def test_components_of_one_table_lie_side_by_side(declared: Declarations) -> None:
    kv = one(declared, "write", group="kv", blocks=[4], tokens=[0, 16])
    ix = one(declared, "use", group="ix", blocks=[4])
    assert not kv.meets(ix)
    assert kv.meets(one(declared, "use", group="kv", blocks=[4]))
    assert kv.meets(one(declared, "use", group="w", blocks=[4])), "another table overlays it"
    assert ix.meets(one(declared, "zero", pool="gpu", blocks=[4])), "a whole block is cleared"
    assert not ix.meets(one(declared, "zero", pool="cpu", blocks=[4]))


def test_parts_do_not_conflict(declared: Declarations) -> None:
    layer0 = one(declared, "use", group="kv", blocks=[4], part=0)
    assert not layer0.meets(one(declared, "write", group="kv", blocks=[4], tokens=[0, 1], part=1))
    assert layer0.meets(one(declared, "write", group="kv", blocks=[4], tokens=[0, 1]))


def _peer(declared: Declarations, group: str) -> Access:
    return two(declared, "store_begin", handle="h", group=group, blocks=[4], to="cpu", peer=[8])[1]


def test_components_stay_apart_on_the_far_side(declared: Declarations) -> None:
    assert not _peer(declared, "kv").meets(_peer(declared, "ix"))
    declared.group(_event("group", group="kv.cpu", form="compressed", pool="cpu", block_tokens=16))
    assert not _peer(declared, "kv").meets(_peer(declared, "ix")), "half a table is mirrored"
    direct = one(declared, "write", group="kv.cpu", blocks=[8], tokens=[0, 16])
    assert direct.meets(_peer(declared, "kv"))


def test_a_mirrored_table_is_named_by_its_mirrors(declared: Declarations) -> None:
    for group, form in (("kv.cpu", "compressed"), ("ix.cpu", "indexer")):
        declared.group(
            _event("group", group=group, form=form, pool="cpu", block_tokens=16, table="t.cpu")
        )
    direct = one(declared, "write", group="kv.cpu", blocks=[8], tokens=[0, 16])
    assert direct.meets(_peer(declared, "kv"))
    assert not direct.meets(_peer(declared, "ix"))


def test_buffers_meet_by_name(declared: Declarations) -> None:
    read = one(declared, "buffer", name="table", op="read", step=3)
    write = one(declared, "buffer", name="table", op="write")
    assert write.write and not read.write
    assert read.meets(write)
    assert not read.meets(one(declared, "buffer", name="other", op="write"))
    assert not read.meets(one(declared, "zero", pool="gpu", blocks=[4]))


def test_slots_of_a_write_are_told_block_by_block(declared: Declarations) -> None:
    write = one(declared, "write", group="kv", blocks=[4, 5, 6], tokens=[10, 40])
    assert [write.slots(i) for i in range(3)] == [(10, 16), (0, 16), (0, 8)]
    assert one(declared, "write", group="kv", blocks=[4], tokens=[10, 40]).slots(0) is None
    assert one(declared, "use", group="kv", blocks=[4]).slots(0) is None
