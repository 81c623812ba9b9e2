-- Configure a session for reading very many rows. Without statistics, as in a new table, the planner expects five rows
-- of a million and looks each of them up. With nested loops off it merges two indexes of the same order, which streams,
-- or hashes where it knows nothing. Rows are stored nearly in the order of those indexes, so a random page costs about
-- as much as the next one; at a cost of four times that, the planner read all of `body` for every task and hashed it on
-- disk. JIT compilation takes longer than it saves. Parallel workers are off: the reader runs as many tasks as it
-- wants, and parallel workers also made the planner hash.
select
    set_config('enable_nestloop', 'off', false) as enable_nestloop, set_config('jit', 'off', false) as jit,
    set_config('random_page_cost', '1.1', false) as random_page_cost,
    set_config('max_parallel_workers_per_gather', '0', false) as parallel_workers,
    set_config('client_encoding', 'UTF8', false) as client_encoding
