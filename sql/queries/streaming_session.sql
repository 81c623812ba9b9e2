-- Prepare a session for reading a great many rows. Without statistics, as a table has none when it is new, the planner
-- expects five rows of a million and looks each of them up; told not to, it merges two indexes in the same order, which
-- streams, or hashes, where it knows nothing. Compiling a plan takes longer than it saves. Parallel workers are of no
-- use: as many tasks read at once as are wanted, and for the workers' sake the planner hashed, by way of the disk, what
-- can be merged.
select
    set_config('enable_nestloop', 'off', false) as enable_nestloop, set_config('jit', 'off', false) as jit,
    set_config('max_parallel_workers_per_gather', '0', false) as parallel_workers,
    set_config('client_encoding', 'UTF8', false) as client_encoding
