"""The report: one self-contained HTML page from a lake, without scripts, fonts or network."""
