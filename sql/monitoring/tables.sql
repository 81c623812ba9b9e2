-- Are the tables healthy: does vacuum remove dead rows in time, do the tables stay small?
--
-- bytes_per_live_row  size of table and indexes per live row. It rises when the space of dead rows is not reused:
--                     bloat. An empty queue has few rows and some space, so compare with a busy hour.
-- dead_rows           not yet vacuumed. The job tables are vacuumed from 5,000 on, at full speed.
-- vacuum_now          the phase of a vacuum that is running.
-- frozen_age          transactions since the table was frozen; PostgreSQL freezes at 200 million by itself.
--
-- Normal: dead_rows of the job tables goes up and down, and vacuumed_at is minutes ago in a busy system.
-- Not so: dead_rows only rises although vacuums rises, too: an old snapshot keeps them (snapshots.sql). vacuums does
-- not rise: autovacuum is off, or all its workers are busy elsewhere (autovacuum_max_workers). The space stays after
-- a flood of jobs: PostgreSQL reuses it; `vacuum full` returns it and locks the table meanwhile.
--
-- Sizes are exact, rows are PostgreSQL's own estimates.
select
    t.table_name, pg_size_pretty(t.table_bytes) as table_size, pg_size_pretty(t.index_bytes) as index_size, t.live_rows,
    t.dead_rows, t.bytes_per_live_row, t.vacuumed_at, t.vacuums, t.analysed_at, t.frozen_age, t.vacuum_now
from pgjq.table_health as t
order by t.table_bytes + t.index_bytes desc;
