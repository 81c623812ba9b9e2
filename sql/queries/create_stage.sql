-- Make a stage for jobs on their way in: see sql/functions/0001_stage.sql.
select pgjq.create_stage() as stage
