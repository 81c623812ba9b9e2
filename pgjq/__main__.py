"""`python -m pgjq`: the command line, as the script `pgjq` runs it."""

from __future__ import annotations

from pgjq.cli import main

if __name__ == "__main__":
    main()
