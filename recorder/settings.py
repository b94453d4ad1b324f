"""How a recording is made: said once, by who begins it, for every process that takes part.

They are in `settings.json` in the recording's folder, which only its owner may read: the key of
the hashes is among them until the recording ends.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.model.recording import SETTINGS
from hkvtool.model.ring_format import Policy
from hkvtool.recorder.ring import RING_BYTES

MAX_BYTES = 64 << 20
"""Default for all rings of a process together."""

_KEY_BYTES = 32

_BY_ENVIRONMENT = {
    "HKV_POLICY": "policy", "HKV_RING_BYTES": "ring_bytes", "HKV_MAX_BYTES": "max_bytes",
    "HKV_RINGS": "rings", "HKV_KEEP_TOKENS": "keep_tokens", "HKV_HASH_KEY": "key_file",
}  # fmt: skip


class SettingsError(HkvError):
    """Settings that make no sense; says which."""


@dataclass(frozen=True)
class Settings:
    """`ring_bytes` is the size of a thread's ring, `max_bytes` of all rings of a process together
    (`Policy.GROW` has no such limit). With `stamp`, events get the time and the number on their
    lane; else they carry their own. `rings` is another folder for the rings, as `/dev/shm`."""

    policy: Policy = Policy.DROP
    ring_bytes: int = RING_BYTES
    max_bytes: int = MAX_BYTES
    stamp: bool = True
    keep_tokens: bool = False
    rings: str = ""
    triggers: tuple[str, ...] = ()
    """Reasons for which a snapshot is taken where a guard asks for one; none: for all."""
    key: bytes = field(default_factory=lambda: fresh_key(), repr=False)

    @staticmethod
    def of_environment(environ: Mapping[str, str]) -> Settings:
        """As the environment variables HKV_POLICY, HKV_RING_BYTES, … say. Raises SettingsError."""
        said: dict[str, Any] = {}
        for variable, name in _BY_ENVIRONMENT.items():
            text = environ.get(variable, "")
            if not text:
                continue
            try:
                if name == "policy":
                    said[name] = policy_of(text)
                elif name == "keep_tokens":
                    said[name] = text not in ("0", "no", "false")
                elif name == "key_file":
                    said["key"] = read_key(text)
                elif name == "rings":
                    said[name] = text
                else:
                    said[name] = int(text)
            except ValueError:
                raise SettingsError(f"{variable}={text} is no number of bytes") from None
        return Settings(**said)

    def write(self, folder: str) -> None:
        """Put them into a recording's folder. Raises OSError."""
        data = asdict(self) | {"policy": self.policy.name.lower(), "key": self.key.hex()}
        place = os.path.join(folder, SETTINGS)
        fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            json.dump(data, file)

    @staticmethod
    def read(folder: str) -> Settings:
        """Those of a recording. Raises SettingsError, OSError."""
        with open(os.path.join(folder, SETTINGS), encoding="utf-8") as file:
            try:
                data = json.load(file)
                data |= {"policy": policy_of(data["policy"]), "key": bytes.fromhex(data["key"]),
                         "triggers": tuple(data["triggers"]), "ring_bytes": int(data["ring_bytes"]),
                         "max_bytes": int(data["max_bytes"])}  # fmt: skip
                return Settings(**data)
            except (ValueError, KeyError, TypeError, RecursionError) as e:
                raise SettingsError(f"its settings cannot be read: {e}") from e

    def forget_key(self, folder: str) -> None:
        """The recording has ended: nobody can tell any more what its hashes stand for."""
        with suppress(OSError):
            replace(self, key=b"").write(folder)


def fresh_key() -> bytes:
    """Of one recording: what it hashes can be compared within it only."""
    return secrets.token_bytes(_KEY_BYTES)


def policy_of(text: str) -> Policy:
    """A policy by its name. Raises SettingsError."""
    try:
        return Policy[text.upper()]
    except KeyError:
        names = ", ".join(policy.name.lower() for policy in Policy)
        raise SettingsError(f"there is no policy {text!r}: {names}") from None


def read_key(path: str) -> bytes:
    """The key in a file, for recordings that are to be compared. Raises SettingsError."""
    try:
        with open(path, "rb") as file:
            key = file.read(65)
    except OSError as e:
        raise SettingsError(f"cannot read the key in {path}: {e.strerror or e}") from e
    if not 16 <= len(key) <= 64:
        raise SettingsError(f"{path}: a key has 16 to 64 bytes, as `head -c 32 /dev/urandom` gives")
    return key
