"""The command line `pgjq`: one file per command or group, thin over `pgjq.Client`.

`root` handles errors and exit codes, `storage` opens the storage, `output` writes the results, `settings` declares the
options of jobs and queues.
"""

from __future__ import annotations

import click

from pgjq.cli.bench import bench
from pgjq.cli.demo.command import demo
from pgjq.cli.enqueue import enqueue
from pgjq.cli.job import cancel, delete, result, retry, status
from pgjq.cli.jobs import jobs
from pgjq.cli.log import begin_quietly
from pgjq.cli.migrate import migrate
from pgjq.cli.pipeline import pipeline
from pgjq.cli.prune import prune
from pgjq.cli.queues import queues
from pgjq.cli.reaper import reaper
from pgjq.cli.root import EXIT_CODES, Commands
from pgjq.cli.web import web
from pgjq.cli.worker import worker
from pgjq.cli.workers import workers

COMPLETION = """\b
Completion of commands and options, for bash (or zsh, fish), in ~/.bashrc:
  eval "$(_PGJQ_COMPLETE=bash_source pgjq)\""""


@click.group(
    "pgjq",
    cls=Commands,
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
      pgjq worker shop.tasks:mail                      run the handlers of a queue
      pgjq enqueue mail '{"order": 7}' --id receipt-7  add a job
      pgjq jobs retry --queue mail --state failed      give failed jobs another chance
      pgjq --debug migrate status                      what is wrong, with the traceback
    """  # noqa: D301
    begin_quietly(debug=debug)


main.add_command(demo)
main.add_command(migrate)
main.add_command(worker)
main.add_command(reaper)
main.add_command(enqueue)
main.add_command(status)
main.add_command(result)
main.add_command(cancel)
main.add_command(retry)
main.add_command(delete)
main.add_command(jobs)
main.add_command(queues)
main.add_command(workers)
main.add_command(web)
main.add_command(pipeline)
main.add_command(prune)
main.add_command(bench)
