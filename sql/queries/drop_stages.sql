-- Drop stages that are not wanted any more.
select pgjq.drop_stages(:stages::text[]) as dropped
