-- Are the tables in good health: is what is dead removed in time, do they stay small?
--
-- bytes_per_live_row  table and indexes over the rows that live. It rises when the space of dead rows is not used
--                     again: bloat. An empty queue has few rows and some space, so compare with a busy hour.
-- dead_rows           not yet vacuumed away. job's are vacuumed from 5,000 on, at full speed.
-- vacuum_now          the phase of a vacuum that runs this moment.
-- frozen_age          transactions since the table was frozen; PostgreSQL freezes at 200 million by itself.
--
-- Normal: dead_rows of the job tables goes up and down and vacuumed_at is minutes ago in a busy system.
-- Not so: dead_rows only rises although vacuums rises, too: something old keeps them (snapshots.sql). vacuums does
-- not rise: autovacuum is off, or all its workers are busy elsewhere (autovacuum_max_workers). The space stays after
-- a flood is over: it is used again; `vacuum full` gives it back and locks the table meanwhile.
--
-- Sizes are exact, rows are PostgreSQL's own estimates.
select
    t.table_name, pg_size_pretty(t.table_bytes) as table_size, pg_size_pretty(t.index_bytes) as index_size, t.live_rows,
    t.dead_rows, t.bytes_per_live_row, t.vacuumed_at, t.vacuums, t.analysed_at, t.frozen_age, t.vacuum_now
from pgjq.table_health as t
order by t.table_bytes + t.index_bytes desc;
