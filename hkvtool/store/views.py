"""Views for people: the tables with names put back, and the questions most often asked.

Each is one SELECT in order of position, with a sentence for each of its columns;
`docs/reference/store.md` is made from them. Names are put back by left joins, through which
DuckDB pushes a condition on a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hkvtool.model.events import DEFAULT_ACTOR, DEVICE_ACTOR, EVENTS
from hkvtool.store.schema import HOLDERS


@dataclass(frozen=True)
class View:
    """One view; `columns` says what each column is, in order."""

    name: str
    doc: str
    columns: dict[str, str]
    query: str
    order: str = "e.pos"

    @property
    def ddl(self) -> str:
        return f"CREATE VIEW {self.name} AS {self.query.strip()}\nORDER BY {self.order}"


def _docs(text: str) -> dict[str, str]:
    """Columns from lines of ``name what it is``; an indented line goes on with the last."""
    lines = text.strip().replace("\n ", " ").splitlines()
    return {name: doc for name, _, doc in (line.partition(" ") for line in lines)}


def _codes(*kinds: str) -> str:
    return ", ".join(str(EVENTS[kind].code) for kind in kinds)


def _named(table: str, columns: Iterable[str]) -> str:
    """Joins that put names back: of the column `req` it is then `_req.name`. Each of `columns` is
    written ``column``, or ``column:domain`` where the two differ."""
    joins = []
    for text in columns:
        column, _, domain = text.partition(":")
        joins.append(
            f"LEFT JOIN (SELECT id, name FROM names WHERE domain = '{domain or column}') "
            f'AS _{column} ON _{column}.id = {table}."{column}"'
        )
    return "\n".join(joins)


def _rest(key: str, kind: str = "VARCHAR", table: str = "e") -> str:
    """A key that stands in `rest`, NULL where it is absent or of another type."""
    # JSON allows lone surrogates, and DuckDB's reader would end the query at one.
    value = f"(CASE WHEN json_valid({table}.rest) THEN {table}.rest END ->> '$.{key}')"
    return value if kind == "VARCHAR" else f"TRY_CAST({value} AS {kind})"


_HOLDERS = _codes(*HOLDERS)
_COPY = _codes("copy")

EVENT_LOG = View(
    "event_log",
    "Every event with names instead of numbers; its hashes are in `hash_events`.",
    _docs("""
pos position
ev kind of event; `?` for one that cannot be taken at its word
actor lane, the default one filled in
ts nanoseconds on the trace's clock
seq the recorder's own count on that lane
step engine step
req request
group cache group
group2 written group of a `copy`, tail group of a `seal`
src_group group read by a `copy`, over `group`
owner holder that is no request
pool pool as stated
pool2 far pool of a transfer
handle transfer
part layer or shard
t0 first token
t1 end of the tokens
version content version as stated
kv_version KV version of indexer rows
aux `at` of a resume, `tokens` of a lookup, `to` of a rollback, `window_start` of a slide,
 `blocks` of a pool
pad padding rows
bypass graph bypassed
ok false where a transfer failed; NULL for events that are no end of one
blocks block ids; `src` of a copy
blocks2 `dst` of a copy, `peer` of a transfer and what `failed` of it, `front` of a free
rest every other key, as a JSON object
problem why it cannot be taken at its word
"""),
    f"""
SELECT e.pos, k.name AS ev,
    CASE WHEN e.actor IS NOT NULL THEN _actor.name
         WHEN k.access AND e.step IS NOT NULL THEN '{DEVICE_ACTOR}'
         ELSE '{DEFAULT_ACTOR}' END AS actor,
    e.ts, e.seq, e.step, _req.name AS req, _group.name AS "group",
    CASE WHEN e.ev NOT IN ({_HOLDERS}) THEN _group2.name END AS group2,
    CASE WHEN e.ev = {_COPY} THEN _src.name END AS src_group,
    CASE WHEN e.ev IN ({_HOLDERS}) THEN _owner.name END AS owner,
    _pool.name AS pool, _pool2.name AS pool2, _handle.name AS handle, _part.name AS part,
    e.t0, e.t1, e.version, e.kv_version, CASE WHEN e.ev <> {_COPY} THEN e.aux END AS aux,
    e.flags & 1 = 1 AS pad, e.flags & 2 = 2 AS bypass,
    CASE WHEN e.ev IN ({_codes("store_end", "load_end")}) THEN e.flags & 4 = 0 END AS ok,
    e.blocks, e.blocks2, e.rest, e.problem
FROM events e JOIN kinds k ON k.ev = e.ev
{_named("e", ("actor", "req", "group", "group2:group", "pool", "pool2:pool", "handle", "part"))}
LEFT JOIN (SELECT id, name FROM names WHERE domain = 'req') AS _owner ON _owner.id = e.group2
LEFT JOIN (SELECT id, name FROM names WHERE domain = 'group') AS _src ON _src.id = e.aux
""",
)

HASH_EVENTS = View(
    "hash_events",
    "One row for every hash that an event names beside a block.",
    _docs("""
pos position
ev kind of event
req request
group cache group
block block id at the same place; NULL where the event lists none
hash content hash
"""),
    f"""
SELECT e.pos, k.name AS ev, _req.name AS req, _group.name AS "group", e.block, _hash.name AS hash
FROM (SELECT pos, ev, req, "group", unnest(hashes) AS hash,
             generate_subscripts(hashes, 1) AS nth,
             CASE WHEN len(blocks) = len(hashes) THEN unnest(blocks) END AS block
      FROM events WHERE hashes IS NOT NULL) e
JOIN kinds k ON k.ev = e.ev
{_named("e", ("req", "group", "hash"))}
""",
    order="e.pos, e.nth",
)

POOLS = View(
    "pools",
    "Pools as declared.",
    _docs("""
pos position
pool one block-id space on one medium
medium gpu, cpu, disk or remote
blocks number of block ids
reserved ids never allocated
engine engine that owns it
"""),
    f"""
SELECT e.pos, _pool.name AS pool, {_rest("medium")} AS medium, e.aux AS blocks,
    {_rest("reserved", "BIGINT[]")} AS reserved, {_rest("engine")} AS engine
FROM events e {_named("e", ("pool",))} WHERE e.ev = {_codes("pool")}
""",
)

GROUPS = View(
    "groups",
    "Cache groups as declared.",
    _docs("""
pos position
group layers that share a block table and a form
form home form
pool pool of its blocks
block_tokens tokens a block holds
ratio tokens per stored entry
window tokens of its window
serves group that it is a component of
table block table, where it shares one
participates a resume needs it
"""),
    f"""
SELECT e.pos, _group.name AS "group", {_rest("form")} AS form, _pool.name AS pool,
    {_rest("block_tokens", "BIGINT")} AS block_tokens,
    coalesce({_rest("ratio", "BIGINT")}, 1) AS ratio, {_rest("window", "BIGINT")} AS "window",
    {_rest("serves")} AS serves, {_rest("table")} AS "table",
    coalesce({_rest("participates", "BOOLEAN")}, true) AS participates
FROM events e {_named("e", ("group", "pool"))} WHERE e.ev = {_codes("group")}
""",
)

TRANSFERS = View(
    "transfers",
    "Every transfer with its end.",
    _docs("""
handle transfer
direction store or load
begin_pos where it begins
end_pos where it ends; NULL where it never does
ok false where it failed; NULL where it never ended
begin_ts nanoseconds on the trace's clock
end_ts nanoseconds on the trace's clock
req request
group cache group
far_pool pool of `peer`
part layer or shard
t0 first token
t1 end of the tokens
blocks device side
peer far side
bytes bytes moved, as stated
failed blocks that did not arrive
"""),
    f"""
SELECT _handle.name AS handle,
    CASE b.ev WHEN {_codes("store_begin")} THEN 'store' ELSE 'load' END AS direction,
    b.pos AS begin_pos, e.pos AS end_pos, e.flags & 4 = 0 AS ok, b.ts AS begin_ts, e.ts AS end_ts,
    _req.name AS req, _group.name AS "group", _pool2.name AS far_pool, _part.name AS part,
    b.t0, b.t1, b.blocks, b.blocks2 AS peer, {_rest("bytes", "BIGINT", "b")} AS bytes,
    e.blocks2 AS failed
FROM (SELECT *, lead(pos) OVER (PARTITION BY handle ORDER BY pos) AS again FROM events
      WHERE ev IN ({_codes("store_begin", "load_begin")})) b
ASOF LEFT JOIN (SELECT * FROM events WHERE ev IN ({_codes("store_end", "load_end")})) ends
    ON b.handle = ends.handle AND b.pos < ends.pos
LEFT JOIN events e ON e.pos = ends.pos AND (b.again IS NULL OR ends.pos < b.again)
{_named("b", ("handle", "req", "group", "pool2:pool", "part"))}
""",
    order="begin_pos",
)

HITS = View(
    "hits",
    "Every lookup and resume, group by group.",
    _docs("""
pos position
ev lookup or resume
req request
step engine step
asked tokens asked for; of a resume the tokens to go on from
group cache group; NULL where the event names none
hit tokens that a lookup found
route recovery route that a resume states
blocks blocks that the event lists for the group
"""),
    f"""
SELECT e.pos, k.name AS ev, _req.name AS req, e.step, e.aux AS asked, e."group",
    map_extract(e.hit, e."group")[1] AS hit, map_extract(e.route, e."group")[1] AS route,
    map_extract(e.blocks, e."group")[1] AS blocks
FROM (SELECT *, unnest(CASE WHEN len(groups) = 0 THEN [NULL] ELSE groups END) AS "group"
      FROM (SELECT *, list_sort(list_distinct(list_concat(list_concat(
                coalesce(map_keys(hit), []), coalesce(map_keys(route), [])),
                coalesce(map_keys(blocks), [])))) AS groups
            FROM (SELECT pos, ev, req, step, aux,
                      TRY_CAST(said -> '$.hit' AS MAP(VARCHAR, BIGINT)) AS hit,
                      TRY_CAST(said -> '$.route' AS MAP(VARCHAR, VARCHAR)) AS route,
                      TRY_CAST(said -> '$.blocks' AS MAP(VARCHAR, BIGINT[])) AS blocks
                  FROM (SELECT *, CASE WHEN json_valid(rest) THEN rest::JSON END AS said
                        FROM events WHERE ev IN ({_codes("lookup", "resume")}))))) e
JOIN kinds k ON k.ev = e.ev
{_named("e", ("req",))}
""",
    order='e.pos, e."group"',
)

REQUESTS = View(
    "requests",
    "Every request, from the events that name it.",
    _docs("""
req request
external the id a client knows
tenant tenant
events events that name it
first_pos position of its first event
last_pos position of its last event
admitted position of its first `admit`
ended position of its last `finish` or `abort`
outcome `finish` or `abort`; NULL where it has not ended
refused how often it had to wait
preempted how often it gave its blocks back
"""),
    f"""
SELECT _req.name AS req, any_value(e.external) AS external, any_value(e.tenant) AS tenant,
    count(*) AS events, min(e.pos) AS first_pos, max(e.pos) AS last_pos,
    min(e.pos) FILTER (e.ev = {_codes("admit")}) AS admitted,
    max(e.pos) FILTER (e.ev IN ({_codes("finish", "abort")})) AS ended,
    CASE arg_max(e.ev, e.pos) FILTER (e.ev IN ({_codes("finish", "abort")}))
        WHEN {_codes("finish")} THEN 'finish' WHEN {_codes("abort")} THEN 'abort' END AS outcome,
    count(*) FILTER (e.ev = {_codes("refuse")}) AS refused,
    count(*) FILTER (e.ev = {_codes("preempt")}) AS preempted
FROM (SELECT pos, ev, req, {_rest("external", table="events")} AS external,
             {_rest("tenant", table="events")} AS tenant FROM events WHERE req IS NOT NULL
      AND ev IN ({_codes("admit", "refuse", "preempt", "abort", "finish")})
      UNION ALL SELECT pos, ev, req, NULL, NULL FROM events WHERE req IS NOT NULL
      AND ev NOT IN ({_codes("admit", "refuse", "preempt", "abort", "finish")})) e
JOIN (SELECT id, name FROM names WHERE domain = 'req') AS _req ON _req.id = e.req
GROUP BY _req.name
""",
    order="first_pos",
)

_BEGINS = _codes("store_begin", "load_begin")

BLOCK_EVENTS = View(
    "block_events",
    "One row for every block that an event names, also through a group or as part of a transfer "
    "that ends. With a generation: how often the block had been allocated by then.",
    _docs("""
pos position
ev kind of event
pool pool of the block; NULL where nothing tells it
group cache group
block block id
role `block`; `src`, `dst` of a copy; `peer` on the far side of a transfer
generation allocations of the block up to here, from what a `state` says on; NULL before either
req request
step engine step
version content version as stated
"""),
    f"""
WITH home AS (
    SELECT "group", arg_max(pool, pos) AS pool FROM events WHERE ev = {_codes("group")}
    GROUP BY "group"),
group_ids AS (SELECT id, name FROM names WHERE domain = 'group'),
transfers AS (
    SELECT b.pos, b.handle, b."group", coalesce(b.pool, home.pool) AS pool, b.blocks, b.pool2,
           b.blocks2
    FROM events b LEFT JOIN home ON home."group" = b."group" WHERE b.ev IN ({_BEGINS})),
copies AS (
    SELECT pos, blocks, blocks2, coalesce(aux, "group") AS src, coalesce(group2, "group") AS dst,
           pool, aux IS NOT NULL AS src_named, group2 IS NOT NULL AS dst_named
    FROM events WHERE ev = {_COPY}),
listed AS (
    SELECT pos, said.key AS "group", unnest(said.value) AS block
    FROM (SELECT pos, unnest(map_entries(TRY_CAST(
              CASE WHEN json_valid(rest) THEN rest::JSON END -> '$.blocks'
              AS MAP(VARCHAR, BIGINT[])))) AS said
          FROM events WHERE ev IN ({_codes("lookup", "resume")}))),
ended AS (
    SELECT e.pos, t."group", t.pool, t.blocks, t.pool2, t.blocks2
    FROM (SELECT pos, handle FROM events WHERE handle IS NOT NULL AND blocks IS NULL
          AND ev IN ({_codes("store_end", "load_end", "lease")})) e
    ASOF JOIN transfers t ON t.handle = e.handle AND t.pos < e.pos),
placed AS (
    SELECT e.pos, coalesce(e.pool, home.pool) AS pool, e."group", unnest(e.blocks) AS block,
           'block' AS role, unnest(CASE WHEN e.ev = {_codes("state")} THEN
               TRY_CAST({_rest("gens")} AS BIGINT[]) END) AS said
    FROM events e LEFT JOIN home ON home."group" = e."group"
    WHERE e.blocks IS NOT NULL AND e.ev NOT IN ({_COPY}, {_BEGINS})
    UNION ALL SELECT pos, pool, "group", unnest(blocks), 'block', NULL FROM transfers
    UNION ALL SELECT pos, pool2, "group", unnest(blocks2), 'peer', NULL FROM transfers
    UNION ALL SELECT pos, pool, "group", unnest(blocks), 'block', NULL FROM ended
    UNION ALL SELECT pos, pool2, "group", unnest(blocks2), 'peer', NULL FROM ended
    UNION ALL SELECT c.pos, CASE WHEN src_named THEN home.pool ELSE coalesce(c.pool, home.pool) END,
        c.src, unnest(c.blocks), 'src', NULL
        FROM copies c LEFT JOIN home ON home."group" = c.src
    UNION ALL SELECT c.pos, CASE WHEN dst_named THEN home.pool ELSE coalesce(c.pool, home.pool) END,
        c.dst, unnest(c.blocks2), 'dst', NULL
        FROM copies c LEFT JOIN home ON home."group" = c.dst
    UNION ALL SELECT l.pos, home.pool, g.id, l.block, 'block', NULL
        FROM listed l LEFT JOIN group_ids g ON g.name = l."group"
        LEFT JOIN home ON home."group" = g.id
    UNION ALL SELECT pos, pool, NULL, TRY_CAST(unnest(map_keys(moved)) AS BIGINT), 'block', NULL
        FROM (SELECT pos, pool, TRY_CAST(CASE WHEN json_valid(rest) THEN rest::JSON END -> '$.map'
              AS MAP(VARCHAR, BIGINT)) AS moved FROM events WHERE ev = {_codes("remap")})),
staged AS (
    SELECT p.*, e.ev, e.req, e.step, e.version,
           count(p.said) OVER (PARTITION BY p.pool, p.block ORDER BY p.pos) AS stage
    FROM placed p JOIN events e ON e.pos = p.pos),
counted AS (
    SELECT *, max(said) OVER (PARTITION BY pool, block, stage ORDER BY pos) AS stated,
           count(*) FILTER (ev = {_codes("alloc")})
               OVER (PARTITION BY pool, block, stage ORDER BY pos) AS allocs
    FROM staged)
SELECT b.pos, k.name AS ev, _pool.name AS pool, _group.name AS "group", b.block, b.role,
    nullif(coalesce(b.stated, 0) + b.allocs, 0) AS generation, _req.name AS req, b.step, b.version
FROM counted b
JOIN kinds k ON k.ev = b.ev
{_named("b", ("pool", "group", "req"))}
""",
    order="b.pos, b.role, b.block",
)

VIEWS = (
    EVENT_LOG, BLOCK_EVENTS, HASH_EVENTS, HITS, TRANSFERS, REQUESTS, POOLS, GROUPS,
)  # fmt: skip
"""In the order of the reference."""
