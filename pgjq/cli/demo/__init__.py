"""`pgjq demo`: the newcomer's first command.

`command.py` tells the story, `crew.py` has the worker processes, `worker.py` is what runs in them, and `verdict.py`
checks what came of it. Nothing is staged: the server, the processes and the `kill -9` are real.
"""
