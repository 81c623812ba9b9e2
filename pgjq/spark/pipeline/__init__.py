"""The pipeline: from the history of jobs to a lake of tables, in steps from table to table.

`history` makes up a demo history; `extract` reads endings into the lake (`endings`, `quality`); `metrics`, `advice` and
`anomalies` evaluate them; `run` does all steps, and `lake` stores the tables. See `docs/pipeline.md`.
"""
