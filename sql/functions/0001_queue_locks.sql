-- Locks that keep a queue unchanged while a transaction uses it.

-- Keep a queue unchanged until this transaction ends.
--
-- Producers share the lock; a transaction that deletes or redefines the queue takes it exclusively. It costs a
-- microsecond and no write. A snapshot that is older than the lock may show a queue that is gone: then this locks the
-- queue's row, which fails as a serialization failure. It does the same if the lock is not free: any login can hold it.
create function pgjq.lock_queue(queue text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if pg_try_advisory_xact_lock_shared(hashtext('pgjq.queue'), hashtext(queue)) or pgjq.wait_for_queue_lock(queue) then
        if current_setting('transaction_isolation') = 'read committed' then
            return true;
        end if;
    end if;
    return pgjq.lock_queue_row(queue);
end
$$;

-- Wait for the lock of a queue for as long as creating or deleting one takes; return whether it was obtained.
create function pgjq.wait_for_queue_lock(queue text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
begin
    perform pg_advisory_xact_lock_shared(hashtext('pgjq.queue'), hashtext(queue));
    return true;
exception when lock_not_available then
    return false;
end
$$;

-- Keep a queue unchanged by its row lock, which needs rights on the table: deleting or redefining the queue waits for
-- it, too. It costs a write.
create function pgjq.lock_queue_row(queue text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
begin
    perform from pgjq.queue as q where q.name = queue for key share;
    return true;
exception when lock_not_available then
    raise exception 'queue % has been locked for 10 s: a transaction that stays open deletes or redefines it', queue
    using errcode = 'lock_not_available', hint = 'pg_locks shows who holds the lock of its row in the table queue';
end
$$;

-- Keep a queue that will be referred to from being deleted until this transaction ends; return whether it exists. Waits
-- for a delete in flight. Null is no queue and returns true.
create function pgjq.lock_referenced_queue(queue text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from pgjq.queue as q where q.name = lock_referenced_queue.queue for key share;
    return found or lock_referenced_queue.queue is null;
end
$$;

-- The number of a queue, which its first use creates.
create function pgjq.get_or_create_queue(queue text) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    is_locked constant boolean := pgjq.lock_queue(queue);
    found_id integer;
begin
    loop
        select q.id into found_id from pgjq.queue as q where q.name = queue;
        if found then
            return found_id;
        end if;
        insert into pgjq.queue (name) values (queue) on conflict (name) do nothing;
    end loop;
end
$$;
