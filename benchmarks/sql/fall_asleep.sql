-- Be a worker that sleeps on a queue and is never woken: every commit of an enqueue finds it.
listen "pgjq.wake";
select pg_advisory_lock_shared(hashtext('pgjq.wake'), hashtext('bench'));
