-- Find the id at which to cut a large write in two: see sql/functions/0001_stage.sql.
select pgjq.cut_stages(:stages::text[]) as cut
