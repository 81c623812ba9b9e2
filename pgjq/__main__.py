"""Entry point of `python -m pgjq`: the same command line as the script `pgjq`."""

from __future__ import annotations

from pgjq.cli import main

if __name__ == "__main__":
    main()
