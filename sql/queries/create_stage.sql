-- Create a stage for the jobs of a bulk write: see sql/functions/0001_stage.sql.
select pgjq.create_stage(:write::text) as stage
