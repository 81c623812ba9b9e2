-- Prepare a session for reading a great many rows: two indexes in the same order are merged, which streams, where a
-- hash of half a table would go to disk first; and compiling a plan takes longer than it saves.
select
    set_config('enable_hashjoin', 'off', false) as enable_hashjoin, set_config('jit', 'off', false) as jit,
    set_config('client_encoding', 'UTF8', false) as client_encoding
