-- Reserve :count places in the order of a queue, for jobs that are about to be copied in; and the time of it.
select
    pgjq.queue_id(:queue::text) as queue_id, pgjq.now()::text as at,
    (select q.options::text from pgjq.queue as q where q.name = :queue) as options,
    array(select nextval('pgjq.job_seq') from generate_series(1, :count)) as seqs
