"""The pipeline: from the history of jobs to a lake of tables, in steps that are functions from table to table.

`history` makes one up to look at; `extract` brings endings into the lake (`endings`, `quality`); `metrics`, `advice`
and `anomalies` say what they tell; `run` does all of it, and `lake` is where it stays. See `docs/pipeline.md`.
"""
