-- Undo what there is of writes that were not made: see sql/functions/0001_stage.sql.
select pgjq.abort_writes(:writes::text[]) as aborted
