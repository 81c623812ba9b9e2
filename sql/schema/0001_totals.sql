-- Totals for metrics: how many jobs have ended and stalled. They only grow. Stalls are counted by every reap that finds
-- any; endings by an exporter of metrics, since an hour before its first call.

-- How many jobs have ended and stalled, by queue and task. They only grow.
--
-- `outcome` is completed, failed, cancelled or stalled. Endings until `counted.upto` are in it; stalls always are.
create table pgjq.total (
    queue_id integer not null,
    task text not null,                         -- empty: the job named none
    outcome text not null,
    jobs bigint not null,
    primary key (queue_id, task, outcome)
);

-- The time until which endings are in `total`: one row.
create table pgjq.counted (upto timestamptz not null);
insert into pgjq.counted (upto) values ('-infinity');
