-- Demo history: insert endings of made-up jobs, as if they had run on the days from :first_day to before :last_day of a
-- history of :days days that begins at :begins and has about :jobs jobs. Returns their number.
--
-- The same :seed makes the same history: the random numbers are hashes of the job's number. Queues and workers must
-- exist. Every task has its own rhythm, run times and failures; with :incidents, there are four incidents:
--   a slow database     at 35 % of the days, from 10 to 12 o'clock, billing and search take six times as long
--   a burst of failures at 58 %, from 14 to 17, the payment gateway times out
--   a worker that hangs at 75 %, from 18 to 22, jobs stall on the worker media-2 and are run again by others
--   a backlog           at 89 %, from 9 to 11, six times as much mail, which waits up to forty minutes, until 13
with task (n, queue, name, share, rhythm, typical, spread, patience, failing, workers, errors) as (
    values
    (
        1,
        'mail',
        'send_receipt',
        0.26,
        'office',
        0.22,
        0.45,
        60.0,
        0.004,
        3,
        '{SMTPServerDisconnected,BadAddress}'::text[]
    ),
    (2, 'mail', 'send_welcome', 0.18, 'office', 0.30, 0.45, 60.0, 0.003, 3, '{SMTPServerDisconnected,TemplateError}'),
    (3, 'media', 'thumbnail', 0.14, 'steady', 2.40, 0.55, 900.0, 0.006, 3, '{UnidentifiedImageError,MemoryError}'),
    (4, 'media', 'transcode', 0.02, 'steady', 170.0, 0.60, 900.0, 0.015, 3, '{CalledProcessError,MemoryError}'),
    (5, 'billing', 'charge_card', 0.14, 'office', 1.10, 0.40, 900.0, 0.010, 2, '{CardDeclined,GatewayTimeout}'),
    (6, 'billing', 'invoice', 0.04, 'night', 7.50, 0.50, 900.0, 0.002, 2, '{TemplateError}'),
    (7, 'search', 'reindex', 0.16, 'steady', 0.75, 0.50, 900.0, 0.002, 2, '{ConnectionTimeout}'),
    (8, 'reports', 'build', 0.06, 'office', 48.0, 0.80, 300.0, 0.008, 2, '{QueryCanceled,KeyError}')
),

hour as (
    select
        h.n, :begins::timestamptz + make_interval(hours => h.n) as begins, h.n / 24 as day,
        extract(hour from (:begins::timestamptz + make_interval(hours => h.n)) at time zone 'UTC')::float8 as clock,
        extract(isodow from (:begins::timestamptz + make_interval(hours => h.n)) at time zone 'UTC') > 5 as weekend
    from generate_series(0, :days::integer * 24 - 1) as h (n)
),

rhythm as (
    select
        h.n, r.name, case r.name
            when 'office' then (0.15 + exp(-power(h.clock - 14, 2) / 20)) * case when h.weekend then 0.4 else 1 end
            when 'night' then 0.02 + exp(-power(h.clock - 2, 2) / 2)
            else 1 + 0.25 * sin((h.clock - 9) * pi() / 12)
        end as weight
    from hour as h
    cross join (values ('office'), ('night'), ('steady')) as r (name)
),

whole as (
    select r.name, sum(r.weight) as weight from rhythm as r group by r.name
),

due as (
    select
        h.n as hour, h.begins, h.clock, t.*,
        :incidents::boolean and h.day = floor(:days * 0.35) and h.clock in (10, 11) and t.queue in ('billing', 'search')
            as slow,
        :incidents::boolean and h.day = floor(:days * 0.58) and h.clock in (14, 15, 16) and t.name = 'charge_card'
            as failures,
        :incidents::boolean and h.day = floor(:days * 0.75) and h.clock between 18 and 21 and t.queue = 'media'
            as hangs,
        :incidents::boolean and h.day = floor(:days * 0.89) and h.clock between 9 and 12 and t.queue = 'mail'
            as backlog,
        :jobs * t.share * r.weight / w.weight as expected
    from hour as h
    cross join task as t
    inner join rhythm as r on h.n = r.n and t.rhythm = r.name
    inner join whole as w on t.rhythm = w.name
    where h.day >= :first_day and h.day < :last_day
),

arriving as (
    select d.*, e.mean, d.hour * 64::bigint + d.n as cell
    from due as d
    cross join lateral (select d.expected * case when d.backlog and d.clock < 11 then 6 else 1 end as mean) as e
),

-- About the expected number, with the scatter of a count.
arrived as (
    select a.*, s.i, (a.cell * 1000000 + s.i) as job
    from arriving as a
    cross join lateral generate_series(1, greatest(0, round(
        a.mean + sqrt(a.mean) * sqrt(-2 * ln(1 - (hashint8extended(a.cell, :seed) & 1048575) / 1048576.0)::float8)
        * cos(2 * pi() * (hashint8extended(a.cell, :seed + 1) & 1048575) / 1048576.0)
    ))::bigint) as s (i)
),

chance as (
    select
        a.*,
        (hashint8extended(a.job, :seed + 2) & 1048575) / 1048576.0::float8 as moment,
        (hashint8extended(a.job, :seed + 3) & 1048575) / 1048576.0::float8 as pause,
        sqrt(-2 * ln(1 - (hashint8extended(a.job, :seed + 4) & 1048575) / 1048576.0::float8))
        * cos(2 * pi() * (hashint8extended(a.job, :seed + 5) & 1048575) / 1048576.0) as effort,
        (hashint8extended(a.job, :seed + 6) & 1048575) / 1048576.0::float8 as luck,
        (hashint8extended(a.job, :seed + 7) & 1048575) / 1048576.0::float8 as which,
        hashint8extended(a.job, :seed + 8) & 1048575 as pick
    from arrived as a
),

-- The outcome: the length of the last run, its end state, and the number of runs and stalls before it.
run as (
    select
        c.*, c.begins + make_interval(secs => c.moment * 3600) as created_at,
        c.typical * exp(c.spread * c.effort) * case when c.slow then 6 else 1 end as needed,
        case when c.failures then 0.4 else c.failing end as risk,
        case
            when c.backlog and c.clock < 11 then 1200 * (c.clock - 9 + c.moment)
            when c.backlog then greatest(0, 1200 * (13 - c.clock - c.moment))
            else 0
        end as held_up,
        c.hangs and c.pick % c.workers = 1 or c.luck between 0.5 and 0.5003 as stalls
    from chance as c
),

ended as (
    select
        r.*, e.state, e.attempts, r.queue || '-' || 1 + (r.pick + r.stalls::integer) % r.workers as worker,
        least(r.needed, r.patience) as took,
        r.created_at + make_interval(
            secs =>
            -0.35 * ln(1 - r.pause) + r.held_up + case when r.stalls then 30 + 5 * r.pause else 0 end
            + (e.attempts - 1 - r.stalls::integer) * (least(r.needed, r.patience) * 0.6 + 5)
        ) as started_at,
        case
            when r.needed > r.patience
                then json_build_object(
                        'type', 'Stalled', 'message',
                        'the attempt took too long (worker ' || r.queue || '-' || 1 + r.pick % r.workers || ')',
                        'traceback', null
                    )
            when e.state = 4 then json_build_object(
                    'type', e.error, 'message', 'while running ' || r.name || ' for account ' || r.pick % 5000,
                    'traceback', 'Traceback (most recent call last)'
                )
        end as error
    from run as r
    cross join lateral (
        select
            case
                when r.luck > 0.9985 then 5 when r.needed > r.patience or r.luck < r.risk then 4 else 3
            end as state,
            case
                when r.needed > r.patience or r.luck < r.risk then 3
                when r.luck < r.risk * 4 then 2 + (r.which < 0.2)::integer
                when r.stalls then 2
                else 1
            end as attempts,
            case
                when r.failures and r.which < 0.9 then 'GatewayTimeout'
                else r.errors[1 + floor(r.which * cardinality(r.errors))::integer]
            end as error
    ) as e
),

story as materialized (
    select
        nextval('pgjq.job_seq') as seq, q.id as queue_id, w.id as worker_id, e.job, e.name, e.pick, e.created_at,
        e.started_at, e.started_at + make_interval(secs => e.took) as finished_at, e.state::smallint as state,
        e.attempts::smallint as attempts, e.error, e.stalls, e.workers, e.queue
    from (
        select * from ended
        where started_at + make_interval(secs => took) < :begins::timestamptz + make_interval(days => :days)
        order by created_at, job
    ) as e
    inner join pgjq.queue as q on e.queue = q.name
    inner join pgjq.worker as w on e.worker = w.name
),

bodies as (
    insert into pgjq.body (seq, queue_id, id, created_at, payload, task)
    select
        s.seq, s.queue_id, s.name || '-' || s.job, s.created_at,
        convert_to(json_build_object('task', s.name, 'account', s.pick % 5000)::text, 'UTF8'), s.name
    from story as s
),

stalled as (
    insert into pgjq.progress (seq, queue_id, stalled_on)
    select s.seq, s.queue_id, array[s.queue || '-' || 1 + s.pick % s.workers] from story as s
    where s.stalls
),

endings as (
    insert into pgjq.done (
        seq, queue_id, lease, worker_id, started_at, finished_at, expires_at, delete_after, rank, attempts,
        max_attempts, stalled, state, error
    )
    select
        s.seq, s.queue_id, s.attempts as lease, s.worker_id, s.started_at, s.finished_at,
        s.finished_at + interval '1 hour', 0, 0, s.attempts, 3, s.stalls::integer, s.state, s.error
    from story as s
)

select count(*) as jobs from story
