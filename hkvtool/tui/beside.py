"""The application over a recording whose program was started by the same command.

`python -m hkvtool.tui.beside RECORDING LOG FOLDER` is what `hkvtool record --live` starts; LOG is
where the program prints to, FOLDER where pictures are saved. Its exit code says how it was left.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass

from hkvtool.model.errors import Exit, HkvError

GOES_ON = 10
"""Exit code where the program is to go on without the screen."""

_TAIL_BYTES = 1 << 16

_COLOUR = re.compile("\x1b\\[[0-9;]*m")


@dataclass(frozen=True)
class Beside:
    """The program that is being recorded, as far as the screen knows of it."""

    log: str

    def printed(self) -> list[str]:
        """The last lines that it printed."""
        with suppress(OSError), open(self.log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
            # A progress bar prints one line over the other.
            text = _COLOUR.sub("", text)
            lines = [one.rpartition("\r")[2] for one in text.replace("\r\n", "\n").split("\n")]
            return [one for one in lines if one.strip()]
        return []


def main(recording: str, log: str, folder: str) -> int:
    """Run until it is left."""
    from hkvtool.tui.app import Tui
    from hkvtool.tui.opening import opened

    try:
        os.chdir(folder)
        with opened(recording, wait=True) as session:
            app = Tui(session, name=os.path.basename(recording), beside=Beside(log))
            app.run()
            if app.return_code:
                return Exit.INTERNAL
            return GOES_ON if app.goes_on else Exit.OK
    except HkvError as e:
        print(f"hkvtool: {e.line}", file=sys.stderr)
        return int(e.exit_code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
