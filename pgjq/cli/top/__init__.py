"""`pgjq top`: queues, failures, workers and findings on a live screen, with keys that act.

* `command`: the loop. Keys change the screen at once, from what was read last; a read runs beside them, so a slow
  connection to the storage or to the terminal never blocks a key.
* `model`: what the screen shows, and what keys do to it; pure.
* `reading`: what a screen needs of the storage, in bounded reads.
* `drawing`: a screen as text, for any size from 80 x 24.
* `actions`: pause, resume, retry and cancel, each confirmed by a key and written down like those of the web page.

It is drawn with rich, which the command line has already: textual would be a further dependency for a screen that has
one table, and would read the terminal through threads and escape sequences of its own.
"""
