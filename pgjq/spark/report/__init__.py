"""The report: one page of HTML from a lake, with everything in it: no script, no font, nothing from a network."""
