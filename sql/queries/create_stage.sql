-- Make a stage for jobs of a write on their way in: see sql/functions/0001_stage.sql.
select pgjq.create_stage(:write::text) as stage
