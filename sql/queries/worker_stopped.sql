-- Worker stopped: remove its registration.
delete from pgjq.registration as r
where r.id = :registration
