-- Search before a time: a job's number at :before, by bisection, because numbers ascend nearly as times do.
--
-- Index: the primary key of body, one probe for each of some forty steps.
with recursive bisection as (
    select 0::bigint as low, (select s.last_value + 1 from pgjq.job_seq as s) as high
    union all
    select
        case when coalesce(p.created_at < :before, false) then (b.low + b.high) / 2 + 1 else b.low end,
        case when coalesce(p.created_at < :before, false) then b.high else (b.low + b.high) / 2 end
    from bisection as b
    left join lateral (
        select o.created_at from pgjq.body as o
        where o.seq >= (b.low + b.high) / 2
        order by o.seq limit 1
    ) as p on true
    where b.low < b.high
)

select max(b.low) as seq from bisection as b
