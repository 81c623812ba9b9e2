-- Wake-ups off: whoever enqueues asks for no sleepers and notifies nobody.
create or replace function pgjq.wake(queue text) returns void
language sql volatile
as $$ select $$
