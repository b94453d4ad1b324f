"""The thread of HiCache that writes pages of the host to the storage.

The scheduler hands it jobs through a queue, and reads from another which are done. Until then the
pages are locked, as they are read all the while.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hkvtool.recorder.sglang.storage_tier import File, Part, StorageTier


class Writes:
    """The jobs of one storage."""

    def __init__(self, storage: StorageTier) -> None:
        self.storage = storage
        self.space = ""
        """The namespace of the job that is made ready."""
        self.landed: set[str] = set()
        """Files written in the job under way."""
        self._handed: dict[int, deque[tuple[str, str]]] = {}
        """Signals and namespaces of jobs in the queue, by the engine's list of slots: one that is
        written anew is the same list."""
        self._over: dict[int, int] = {}
        """Numbers of those that are done, by the engine's."""
        self._signals = self._jobs = 0

    def hand_over(self, slots: Any) -> None:
        """A job is put into the queue."""
        self._signals += 1
        event = f"to {self.storage.writer} {self._signals}"
        self._handed.setdefault(id(slots), deque()).append((event, self.space))
        self.storage.tier.state.hooks.tell.event({"ev": "signal", "event": event})

    def begin(self, job: Any) -> tuple[list[Part], list[str]]:
        """The thread begins a job. Pages that are in the storage already are left as they are."""
        storage, lane = self.storage, self.storage.writer
        self.landed = set()
        handed = self._handed.get(id(job.host_indices))
        spaces: list[str] = []
        if handed:
            event, space = handed.popleft()
            spaces.append(space)
            storage.event(lane, ev="wait", event=event)
        if not handed:
            self._handed.pop(id(job.host_indices), None)
        parts = list(storage.parts(job.host_indices, job.hash_value, job.pool_transfers))
        for part in parts:
            places = list(range(len(part.keys)))
            if storage.known:
                storage.look(part, lane)
                called = [storage.file_of(part.pool, key) for key in part.keys]
                places = [i for i in places if called[i] not in part.pool.files]
            part.handle = f"backup{job.id}.{part.pool.far.name}"
            self._begin(part, places, spaces)
        return parts, spaces

    def _begin(self, part: Part, places: list[int], spaces: list[str]) -> None:
        storage, lane, pool = self.storage, self.storage.writer, part.pool
        part.places = places
        if not places:
            return
        begin: dict[str, Any] = {
            "ev": "store_begin", "handle": part.handle, "group": pool.far.name,
            "blocks": [part.pages[i] for i in places], "to": pool.name, **_keyed(spaces),
        }  # fmt: skip
        if storage.known:
            part.blocks = [storage.new() for _ in places]
            storage.event(lane, ev="alloc", pool=pool.name, group=pool.name, blocks=part.blocks)
            begin["peer"] = part.blocks
        storage.event(lane, **begin)

    def end(self, job: Any, parts: list[Part], spaces: list[str]) -> None:
        """It has done what it could of it."""
        storage = self.storage
        self._jobs += 1
        for part in parts:
            called = [storage.file_of(part.pool, k) if storage.known else "" for k in part.keys]
            if storage.known:
                good = {i for i in part.places if called[i] in self.landed}
            else:
                good = set(part.places[: self._done(job, part)])
            self._end(part, called, good, spaces)
            # One that was there at the beginning, made room and was written again.
            again = [
                i for i, name in enumerate(called)
                if storage.known and name in self.landed and name not in part.pool.files
            ]  # fmt: skip
            if again:
                part.handle += " again"
                self._begin(part, again, spaces)
                self._end(part, called, set(again), spaces)
        self._over[job.id] = self._jobs
        storage.event(storage.writer, ev="signal", event=self.signal(self._jobs))

    def _done(self, job: Any, part: Part) -> int:
        """Pages that a storage says it has taken."""
        if part.pool.engine == "kv":
            return int(job.completed_tokens) // part.pool.far.page
        hits = job.pool_storage_result.extra_pool_hit_pages
        return int(hits.get(part.pool.engine, 0))

    def _end(self, part: Part, called: list[str], good: set[int], spaces: list[str]) -> None:
        storage, lane, pool = self.storage, self.storage.writer, part.pool
        if not part.places:
            return
        failed = [part.pages[i] for i in part.places if i not in good]
        end: dict[str, Any] = {"ev": "store_end", "handle": part.handle}
        if failed:
            end |= {"ok": False, "failed": failed}
        storage.event(lane, **end)
        if not storage.known:
            return
        told: dict[int, str] = {}
        for i, block in zip(part.places, part.blocks, strict=True):
            name = part.names[i]
            if i in good:
                pool.files[called[i]] = File(block, name, self._jobs)
                if name is not None:
                    told[block] = name
        if told:
            storage.event(
                lane, ev="publish", group=pool.name, blocks=list(told),
                hashes=list(told.values()), **_keyed(spaces),
            )  # fmt: skip
        storage.event(lane, ev="free", pool=pool.name, blocks=part.blocks)

    def signal(self, job: int) -> str:
        """Behind everything of a job and of those before it."""
        return f"{self.storage.writer} {job}"

    def heard(self, job: Any) -> None:
        """The scheduler has read that a job is done."""
        number = self._over.pop(job.id, None)
        if number is not None:
            event = self.signal(number)
            self.storage.tier.state.hooks.tell.event({"ev": "wait", "event": event})

    def forget(self) -> None:
        """The queues are emptied."""
        self._handed.clear()
        self._over.clear()


def _keyed(spaces: list[str]) -> dict[str, list[str]]:
    """What the keys of a job hold, where it was seen to be made ready."""
    return {"key": spaces} if spaces else {}
