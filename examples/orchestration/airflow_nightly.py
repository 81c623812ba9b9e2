"""Airflow: bring new endings into the lake every night, then write the report and fail if a target is missed.

Put this file into Airflow's dags folder. The workers need `pip install "pgjq[spark,delta]"`, Java 17 and the lake's
directory; PGJQ_URL comes from a connection or from the workers' environment.
"""
# pyright: basic, reportMissingImports=false

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

LAKE = "/srv/jobs.lake"

with DAG(
    "pgjq_history",
    schedule="15 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # A run reads everything that is new, whenever it starts.
    max_active_runs=1,  # A second run on the same lake is refused.
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
):
    extract = BashOperator(
        task_id="extract",
        bash_command=f"pgjq pipeline run --lake {LAKE} --delta s3://warehouse/jobs --keep 400d --json",
    )
    report = BashOperator(
        task_id="report",
        bash_command=f"pgjq pipeline report --lake {LAKE} --out /srv/www/jobs.html --slo '*=99' --check --json",
        retries=0,  # A missed target does not mend itself within minutes.
    )
    extract >> report
