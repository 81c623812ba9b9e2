"""Dagster: the lake of endings and the report as assets, with the number of endings as metadata.

`dagster dev -f dagster_nightly.py`, with `pip install "pgjq[spark,delta]"`, Java 17 and PGJQ_URL in its environment.
"""
# pyright: basic, reportMissingImports=false

import json
import subprocess

import dagster

LAKE = "/srv/jobs.lake"


def pipeline(*words: str) -> dict:
    """Run a command of the pipeline and return what it prints."""
    told = subprocess.run(("pgjq", "pipeline", *words, "--json"), check=True, capture_output=True, text=True)  # noqa: S607
    return json.loads(told.stdout.splitlines()[-1])


@dagster.asset
def job_history() -> dagster.MaterializeResult:
    """The endings of all jobs, as Parquet and as Delta tables."""
    told = pipeline("run", "--lake", LAKE, "--delta", "s3://warehouse/jobs", "--keep", "400d")
    return dagster.MaterializeResult(metadata={"read": told["read"], "quarantined": told["quarantined"]})


@dagster.asset(deps=[job_history])
def job_report() -> dagster.MaterializeResult:
    """The page that says what to do today."""
    told = pipeline("report", "--lake", LAKE, "--out", "/srv/www/jobs.html", "--slo", "*=99")
    return dagster.MaterializeResult(metadata={"missed": told["missed"], "findings": len(told["findings"])})


nightly = dagster.define_asset_job("nightly", selection="*")
definitions = dagster.Definitions(
    assets=[job_history, job_report],
    jobs=[nightly],
    schedules=[dagster.ScheduleDefinition(job=nightly, cron_schedule="15 2 * * *")],
)
