-- Drop stages of writes that are not going to be made.
select pgjq.drop_stages(:writes::text[]) as dropped
