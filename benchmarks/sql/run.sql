-- Have the first jobs run, as a claim leaves them, with leases that last so long, or lapsed so long ago.
update pgjq.job as j
set
    state = 1, ready = false, lease = j.lease + 1, attempts = j.attempts + 1, started_at = pgjq.now(),
    lease_seconds = abs(%(lease)s), locked_until = pgjq.now() + make_interval(secs => %(lease)s)
where j.seq in (select head.seq from pgjq.job as head where head.ready order by head.seq limit %(count)s)
