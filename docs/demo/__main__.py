"""Make the picture of the demo: `make picture` records a run of `pgjq demo` and draws it.

`record.py` runs the command in a terminal of its own and writes what it printed, with times, into `demo.cast`
(asciinema's format). `terminal.py` replays that into screens, and `draw.py` makes one SVG of the screens. With the
argument `draw` the stored recording is drawn again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from docs.demo.draw import draw
from docs.demo.record import record
from docs.demo.terminal import screens

FOLDER = Path(__file__).parent
CAST, PICTURE = FOLDER / "demo.cast", FOLDER / "demo.svg"


def main() -> None:
    """Record, unless told only to draw; then draw."""
    if sys.argv[1:] != ["draw"]:
        CAST.write_text(record(["pgjq", "demo"]))
    PICTURE.write_text(draw(screens(CAST.read_text())))


if __name__ == "__main__":
    main()
