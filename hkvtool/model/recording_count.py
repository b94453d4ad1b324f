"""How a recording stands, and what was found when it was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from hkvtool.model.clocks import Clock
from hkvtool.model.ring_reader import RingCount


class Stage(str, Enum):
    """How far a recording has come."""

    RECORDING = "recording"
    DIED = "died"
    COMPLETE = "complete"


@dataclass
class RecordingCount:
    """What was read of a recording; final once its events have ended."""

    stage: Stage
    rings: RingCount = field(default_factory=RingCount)
    total_bytes: int = 0
    read_bytes: int = 0
    """Of `total_bytes`, known from the beginning: for whoever wants to know how far it is."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Ring files that could not be read at all, and why."""
    failed: dict[str, str] = field(default_factory=dict)
    """Rings whose recorder turned itself off, and why."""
    clocks: dict[int, Clock] = field(default_factory=dict)
    """Of the machines that recorded, where there are several."""

    def problems(self) -> list[str]:
        """What a person should know, a sentence each; none where every event is there."""
        count, said = self.rings, []
        if self.stage is Stage.RECORDING:
            said.append("it is still being recorded; this is what it held when it was read")
        if self.stage is Stage.DIED:
            said.append("the program died while it recorded; what it had recorded is here")
        if count.dropped:
            said.append(f"{count.dropped:,} of {count.emitted:,} events were dropped (HKV903)")
        if count.vanished:
            said.append(f"{count.vanished:,} earlier events were overwritten, as it was asked to")
        if count.torn:
            said.append(f"damaged in {count.torn:,} places, which were cut out (HKV903)")
        said += [
            f"the clock of machine {clock.host} drifted by {(clock.lowest or 0) / 1e6:,.3f} ms "
            "against what its edges allow; its order to the others is not certain"
            for clock in self.clocks.values() if not clock.consistent
        ]  # fmt: skip
        said += [f"{name}: {why}" for name, why in self.unreadable.items()]
        said += [f"{name}: recording turned itself off: {why}" for name, why in self.failed.items()]
        return said
