"""What was compared already, in a file: a probe that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hkvtool.model.errors import HkvError

FORMAT = "hkv-probe-state/1"

_MOST_BYTES = 256 << 20


class Kept:
    """Records in order; with a file each is written as it comes."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.sessions = 1
        self._file: Path | None = None

    @staticmethod
    def at(path: Path, plan: dict[str, Any]) -> tuple[Kept, dict[str, Any]]:
        """Those of a file, which is begun where there is none, and the plan that it was begun with:
        `plan` must agree with that in all but the seed. Raises HkvError."""
        kept = Kept()
        kept._file = path
        begun = dict(plan)
        if path.exists():
            header, kept.records = _read(path)
            begun = header["plan"]
            apart = [k for k in plan if k != "seed" and plan[k] != begun.get(k)]
            if apart:
                raise HkvError(
                    f"{path} was begun with another {apart[0]}: {begun.get(apart[0])!r}, not "
                    f"{plan[apart[0]]!r}", hint="give the same options, or another --state",
                )  # fmt: skip
            kept.sessions = 1 + sum("session" in r for r in kept.records)
            kept._mend()
            kept.add({"session": kept.sessions})
        else:
            kept._write({"format": FORMAT, "plan": plan})
        return kept, begun

    def add(self, record: dict[str, Any]) -> None:
        """Keep one. Raises OSError."""
        self.records.append(record)
        if self._file is not None:
            self._write(record)

    def of(self, *stages: str) -> list[dict[str, Any]]:
        return [r for r in self.records if r.get("stage") in stages]

    def _write(self, record: dict[str, Any]) -> None:
        assert self._file is not None
        fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(fd, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")

    def _mend(self) -> None:
        """A line that was cut off must not run into the next."""
        assert self._file is not None
        with self._file.open("r+b") as file:
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)


def _read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header, and what is whole behind it."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise HkvError(
            f"the state of a probe is never larger than {_MOST_BYTES >> 20} MiB", where=str(path),
            hint="name another file with --state, it is made",
        )  # fmt: skip
    lines = data.decode(errors="replace").split("\n")[:-1]
    try:
        header, *records = [json.loads(line) for line in lines]
        if header["format"] != FORMAT or not isinstance(header["plan"], dict):
            raise ValueError(f"its format is not {FORMAT}")
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise HkvError(
            f"that is no state of a probe: {e}", where=str(path),
            hint="name another file with --state, it is made",
        ) from None  # fmt: skip
    return header, [r for r in records if isinstance(r, dict)]
