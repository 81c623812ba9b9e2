-- Drop unused stages that were created more than :age seconds ago.
select pgjq.drop_old_stages(:age) as dropped
