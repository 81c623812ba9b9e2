-- Let every lease lapse, as if all workers had died a second ago.
update pgjq.job set locked_until = pgjq.now() - interval '1 second'
where state = 1
