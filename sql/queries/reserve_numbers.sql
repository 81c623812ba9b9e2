-- Reserve :count numbers in the order of a queue; also return the time, the options that its jobs inherit, and whether
-- the caller may copy jobs in: the producer role may only call a function.
select r.queue_id, r.at, r.options, r.seqs, rights.may_copy
from
    (
        select
            has_table_privilege(regclass('pgjq.body'), 'insert')
            and has_table_privilege(regclass('pgjq.job'), 'insert') as may_copy
    ) as rights
cross join lateral pgjq.reserve_numbers(:queue::text, :count::integer, :copying::boolean and rights.may_copy) as r
