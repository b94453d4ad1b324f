"""A prefill engine that hands its blocks to a decode engine: two pools, pulls between them."""

from __future__ import annotations

from random import Random

from .paging import Pool
from .tape import Event, Tape, make


def handover_trace(seed: int, streams: bool = True, lease: bool = False) -> list[Event]:
    """Prompts are computed on one side, pulled block by block, and decoded on the other.

    A pull may fail; then it names what failed and the decode side aborts. With `lease` the far
    side promises the bytes and renews once; without `streams` one host does everything in turn.
    """
    rng = Random(f"handover/{seed}/{streams}/{lease}")
    tape = Tape()
    bt = rng.choice((8, 16))
    sides = [
        Pool(tape, name, "gpu", range(1, 64), 64, reserved=[0], engine=name)
        for name in ("prefill", "decode")
    ]
    evidence = ["host", "step", *(["stream"] if streams else []), *(["lease"] if lease else [])]
    head = [make("trace", format="hkv/1", engine="correct", evidence=evidence)]
    head += [make("pool", **pool.declared) for pool in sides]
    for name, pool in zip(("kvp", "kvd"), sides, strict=True):
        head.append(make("group", group=name, form="compressed", pool=pool.name, block_tokens=bt))
    pair = _Pair(tape, rng, bt, sides[0], sides[1], streams, lease)
    for n in range(rng.randint(3, 6)):
        pair.serve(f"{n}", rng.randint(2, 4) * bt)
    pair.settle()
    return head + tape.events


class _Pair:
    def __init__(
        self, tape: Tape, rng: Random, bt: int, prefill: Pool, decode: Pool,
        streams: bool, lease: bool,
    ) -> None:  # fmt: skip
        self.tape, self.rng, self.bt = tape, rng, bt
        self.prefill, self.decode = prefill, decode
        self.streams, self.lease = streams, lease
        self.steps = {"prefill": 0, "decode": 5_000}
        self.edges = 0
        self.alive: list[tuple[str, list[int], int]] = []
        """(request, blocks, tokens) that the decode side still holds."""

    def edge(self, before: str | None, after: str | None) -> None:
        if self.streams:
            self.edges += 1
            self.tape.emit("signal", event=f"x{self.edges}", actor=before)
            self.tape.emit("wait", event=f"x{self.edges}", actor=after)

    def run_step(self, side: str, lines: list[Event], reqs: list[str]) -> None:
        self.steps[side] += 1
        step = self.steps[side]
        self.tape.emit("dispatch", step=step, reqs=reqs)
        for line in lines:
            self.tape.events.append({**line, "step": step, "actor": f"worker:{side}"})
        self.tape.emit("retire", step=step)

    def serve(self, name: str, tokens: int) -> None:
        """One request: prefill, pull, hand over, some decoding."""
        tape, n = self.tape, tokens // self.bt
        p, d = f"p{name}", f"d{name}"
        tape.emit("admit", req=p, engine="prefill")
        near = self.prefill.take(n, ["kvp"], req=p)
        write = make("write", group="kvp", blocks=near, tokens=[0, tokens], req=p)
        use = make("use", group="kvp", blocks=near, req=p)
        self.run_step("prefill", [write, use], [p])
        hashes = [f"h{name}.{i}" for i in range(n)]
        self.prefill.publish("kvp", near, hashes, tokens=[0, tokens], req=p)
        tape.emit("admit", req=d, engine="decode")
        tape.emit("lookup", req=d, hit={"kvd": tokens}, tokens=tokens + 1)
        mine = self.decode.take(n, ["kvd"], req=d)
        ok = self._pull(d, mine, near)
        tape.emit("finish", req=p)
        self.prefill.release(near[::-1], group="kvp", req=p)
        if not ok:
            tape.emit("abort", req=d, reason="receive failed")
            self.decode.release(mine, group="kvd", req=d)
            return
        self.decode.publish("kvd", mine, hashes, tokens=[0, tokens], req=d)
        tape.emit("resume", req=d, at=tokens, blocks={"kvd": mine}, route={"kvd": "load"})
        mine = mine + self.decode.take(1, ["kvd"], req=d)
        self.alive.append((d, mine, tokens))
        for _ in range(self.rng.randint(1, 2)):
            self._decode()
        if len(self.alive) > 2:
            self._end(self.alive.pop(0))

    def _pull(self, req: str, mine: list[int], near: list[int]) -> bool:
        """Several parts of one request's blocks, each a transfer that begins and ends."""
        cut = self.rng.randint(1, len(mine))
        handles = []
        ok = self.rng.random() < 0.8
        nic = "nic" if self.streams else None
        for i, (a, b) in enumerate(((0, cut), (cut, len(mine)))):
            if a == b:
                continue
            handle = f"pull-{req}-{i}"
            handles.append((handle, mine[a:b], near[a:b]))
            if self.lease:
                self._promise("grant", handle, near[a:b], nic)
            else:
                self.edge(None, nic)
            self.tape.emit(
                "load_begin", handle=handle, group="kvd", blocks=mine[a:b], peer=near[a:b],
                from_="prefill", req=req, actor=nic,
            )  # fmt: skip
        if self.alive and self.rng.random() < 0.5:
            self._decode()
        for handle, blocks, peers in handles:
            if self.lease and self.rng.random() < 0.5:
                self._promise("grant", handle, peers, None)
            failed = None if ok else blocks
            self.tape.emit("load_end", handle=handle, ok=ok, failed=failed, actor=nic)
            if self.lease:
                self.edge(nic, "master")
                self._promise("release", handle, peers, None)
        self.edge(nic, None)
        return ok

    def _promise(self, op: str, handle: str, peers: list[int], then: str | None) -> None:
        master = "master" if self.streams else None
        self.edge(None, master)
        self.tape.emit("lease", op=op, handle=handle, pool="prefill", blocks=peers, actor=master)
        if then is not None:
            self.edge(master, then)

    def _decode(self) -> None:
        lines: list[Event] = []
        for n, (req, blocks, tokens) in enumerate(self.alive):
            if tokens < len(blocks) * self.bt:
                span = [tokens, tokens + 1]
                lines.append(make("write", group="kvd", blocks=[blocks[-1]], tokens=span, req=req))
                self.alive[n] = (req, blocks, tokens + 1)
        lines += [make("use", group="kvd", blocks=blocks, req=req) for req, blocks, _ in self.alive]
        self.run_step("decode", lines, [req for req, _, _ in self.alive])

    def _end(self, gone: tuple[str, list[int], int]) -> None:
        self.tape.emit("finish", req=gone[0])
        self.decode.release(gone[1][::-1], group="kvd", req=gone[0])

    def settle(self) -> None:
        """End what still runs."""
        while self.alive:
            self._end(self.alive.pop(0))
