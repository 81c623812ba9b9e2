-- Prepare a session for reading a great many rows. Without statistics, as a table has none when it is new, the planner
-- expects five rows of a million and looks each of them up; told not to, it merges two indexes in the same order, which
-- streams, or hashes, where it knows nothing. Compiling a plan takes longer than it saves.
select
    set_config('enable_nestloop', 'off', false) as enable_nestloop, set_config('jit', 'off', false) as jit,
    set_config('client_encoding', 'UTF8', false) as client_encoding
