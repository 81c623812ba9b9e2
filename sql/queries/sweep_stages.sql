-- Drop stages that somebody left behind more than :age seconds ago.
select pgjq.sweep_stages(:age) as swept
