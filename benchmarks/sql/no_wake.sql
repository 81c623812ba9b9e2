-- Wake-ups off: producers look for no sleepers and send no notification.
create or replace function pgjq.wake(queue text) returns void
language sql volatile
as $$ select $$
