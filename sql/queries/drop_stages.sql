-- Drop the stages of abandoned writes.
select pgjq.drop_stages(:writes::text[]) as dropped
