"""`pgjq demo`: the first command for new users.

`command.py` runs the steps, `worker_processes.py` has the worker processes, `worker.py` runs in them, and `checks.py`
checks the results. The server, the processes and the `kill -9` are real.
"""
