"""The command line `pgjq`: one file per command or group, thin over `pgjq.Client`.

`root` handles errors and exit codes, `storage` opens the storage, `output` writes the results, `settings` declares the
options of jobs and queues.
"""

from __future__ import annotations

import click

from pgjq.cli.command_group import EXIT_CODES, Commands
from pgjq.cli.log_output import begin_quietly

# Each command, in the order of the help: its module, which is imported when the command is used, and its short help.
COMMANDS = {
    "demo": ("pgjq.cli.demo.command", "Watch jobs run while a worker is killed."),
    "migrate": ("pgjq.cli.migrate", "Create or upgrade the schema of a database."),
    "worker": ("pgjq.cli.worker", "Run the tasks and handlers of queues until SIGTERM or Ctrl-C."),
    "reaper": ("pgjq.cli.reaper", "Recover stalled jobs of all queues until SIGTERM or Ctrl-C."),
    "enqueue": ("pgjq.cli.enqueue", "Add a job to a queue."),
    "tasks": ("pgjq.cli.tasks", "List the tasks of a module."),
    "status": ("pgjq.cli.job", "Show a job."),
    "result": ("pgjq.cli.job", "Print the result of a completed job as JSON."),
    "cancel": ("pgjq.cli.job", "Cancel a job."),
    "retry": ("pgjq.cli.job", "Queue a failed or cancelled job again."),
    "release": ("pgjq.cli.job", "Take a running job away from its worker."),
    "reschedule": ("pgjq.cli.job", "Change when a waiting job may run, or its priority."),
    "delete": ("pgjq.cli.job", "Delete a job that is not running."),
    "jobs": ("pgjq.cli.jobs", "Find jobs; retry, cancel or delete all that match."),
    "queues": ("pgjq.cli.queues", "List, define, pause and count queues."),
    "schedules": ("pgjq.cli.schedules", "List, create, pause and explain schedules."),
    "workers": ("pgjq.cli.workers", "List workers."),
    "metrics": ("pgjq.cli.metrics", "Serve metrics of all queues to Prometheus."),
    "health": ("pgjq.cli.health", "Ask a worker whether it takes jobs, for probes of containers."),
    "scale": ("pgjq.cli.scale", "Print how many slots of workers a queue needs."),
    "top": ("pgjq.cli.top.command", "Watch and steer queues and jobs in the terminal."),
    "doctor": ("pgjq.cli.doctor", "Check a storage, its workers and its queues, and say what to do."),
    "web": ("pgjq.cli.web", "Serve a web page that shows and steers queues and jobs."),
    "pipeline": ("pgjq.cli.pipeline", "Analyse the history of jobs with Spark."),
    "prune": ("pgjq.cli.prune", "Delete jobs and records whose retention has passed."),
    "bench": ("pgjq.cli.bench", "Measure the speed of a storage."),
}

COMPLETION = """\b
Completion of commands, options and names, for bash (or zsh, fish), in ~/.bashrc:
  eval "$(_PGJQ_COMPLETE=bash_source pgjq)\""""


@click.group(
    "pgjq",
    cls=Commands,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{EXIT_CODES}\n\n{COMPLETION}",
)
@click.version_option(package_name="pgjq", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error, and not only its message.")
def main(*, debug: bool) -> None:
    """A job queue for Python on PostgreSQL.

    PGJQ_URL, or --url of a command, names the storage: postgresql://…, redis://…, file:///directory, embedded: or
    memory:. Without either it is a PostgreSQL of pgjq's own in your data directory. Durations are seconds, or 90s, 15m,
    2h, 7d. With --json a command answers with one JSON document; without it, with text for people.

    \b
    Examples:
      pgjq demo                                        see jobs run, and one worker killed on the way
      pgjq migrate --url postgresql://localhost/app    bring a database to this version's schema
      pgjq worker shop.tasks                           run the tasks of a module
      pgjq enqueue mail --task receipt --arg 7         add a job of a task
      pgjq jobs retry --queue mail --state failed      give failed jobs another chance
      pgjq --debug migrate status                      what is wrong, with the traceback
    """  # noqa: D301
    begin_quietly(debug=debug)
