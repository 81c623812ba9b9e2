-- Create schedules that run first at a time, and then every hour.
select count(
    pgjq.create_schedule('s' || n, 'imports', every => 3600, start_at => pgjq.now() + make_interval(secs => %(delay)s))
)
from generate_series(1, %(count)s) as n
