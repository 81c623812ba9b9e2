-- Create a stage for the jobs of a bulk write: see sql/functions/0001_stages.sql.
select pgjq.create_stage(:write::text) as stage
