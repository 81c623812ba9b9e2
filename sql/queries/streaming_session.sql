-- Prepare a session for reading a great many rows. Without statistics, as a table has none when it is new, the planner
-- expects five rows of a million and looks each of them up; told not to, it merges two indexes in the same order, which
-- streams, or hashes, where it knows nothing. Rows lie nearly in the order of those indexes, so a page by way of them
-- costs about what the next one costs; at four times that, the planner read all of `body` for every task, and hashed it
-- by way of the disk. Compiling a plan takes longer than it saves. Parallel workers are of no use: as many tasks read
-- at once as are wanted, and for the workers' sake the planner hashed, too.
select
    set_config('enable_nestloop', 'off', false) as enable_nestloop, set_config('jit', 'off', false) as jit,
    set_config('random_page_cost', '1.1', false) as random_page_cost,
    set_config('max_parallel_workers_per_gather', '0', false) as parallel_workers,
    set_config('client_encoding', 'UTF8', false) as client_encoding
