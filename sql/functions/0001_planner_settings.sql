-- Planner settings, in one list: which functions walk indexes only, and which of them plan every call.
--
-- Statistics of a queue are outdated at once (ADR 2), and a plan made from them may read a whole queue. So these
-- functions turn off every plan but walking an index and nested loops. The settings hold inside of a function, and in
-- the functions that it calls; they do not leak into the caller's transaction, and depend on no session.
--
--   * A function of the first list plans every call: a plan from when a queue was empty reads all of a full one
--     (ADR 11). Functions that only these call, such as `pgjq.end_jobs`, need no settings of their own.
--   * A function of the second list keeps its plans: it finds single rows by their keys, whatever the tables hold.
--   * A function whose statements have one plan keeps it from its first call in a session (ADR 20).
--   * Compilation is off: up to PostgreSQL 17 a plan that is turned off counts as very expensive, and expensive plans
--     are compiled.
do $$
declare
    walk_indexes constant text[] := array[
        'jit = off', 'enable_seqscan = off', 'enable_bitmapscan = off', 'enable_sort = off', 'enable_hashjoin = off',
        'enable_mergejoin = off'
    ];
    plan_every_call constant text[] := array[
        'promote', 'claim_planned', 'find_claimed', 'find_settled', 'reap', 'cancel_jobs', 'delete_jobs',
        'retry_jobs', 'redrive', 'prune_ended', 'prune_waiting', 'unblock_keys', 'unblock_forgotten_keys', 'count_ready',
        'find_policy_slots', 'copy_dead_letters', 'fail_invalid_jobs', 'release_jobs', 'record_ended_runs',
        'release_running', 'reschedule_job'
    ];
    one_plan constant text[] := array['claim', 'settle', 'seconds_until_work'];
    keep_plans constant text[] := array[
        'job_state', 'mark_awaited', 'save_checkpoint', 'free_id', 'remove_orphan_body', 'take_time_slot',
        'add_limited_job', 'unblock_key_of_job', 'due_schedules', 'is_overlapping', 'apply_plan',
        'apply_single_plans', 'tick', 'describe_jobs'
    ];
    target text;
    setting text;
begin
    foreach target in array plan_every_call || one_plan || keep_plans loop
        foreach setting in array walk_indexes loop
            execute format('alter function %s.%I set %s', pgjq.schema_name(), target, setting);
        end loop;
    end loop;
    foreach target in array plan_every_call loop
        execute format('alter function %s.%I set plan_cache_mode = force_custom_plan', pgjq.schema_name(), target);
    end loop;
    foreach target in array one_plan loop
        execute format('alter function %s.%I set plan_cache_mode = force_generic_plan', pgjq.schema_name(), target);
    end loop;
end
$$;
