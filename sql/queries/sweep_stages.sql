-- Drop unused stages that were created more than :age seconds ago.
select pgjq.sweep_stages(:age) as swept
