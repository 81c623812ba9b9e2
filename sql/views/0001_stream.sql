-- What streams read, and in which order: endings (`history`) and recorded state changes (`events`). `n` is the row's
-- number, unique in its view.
create view pgjq.stream_row as
select 'history' as view, d.xid, d.seq as n, d.queue_id, d.finished_at as at from pgjq.done as d
union all
select 'events', e.xid, e.n, e.queue_id, e.at from pgjq.job_event as e;
