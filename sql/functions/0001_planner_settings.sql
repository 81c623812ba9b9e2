-- Planner settings, in one list: which functions walk indexes only, and which of them plan every call.
--
-- Statistics of a queue are outdated at once (ADR 2), and a plan made from them may read a whole queue. So these
-- functions walk indexes, in nested loops. The settings hold inside of a function, and in the functions that it calls;
-- they do not leak into the caller's transaction, and depend on no session. Without one of them
-- (tests/postgres/test_plans.py fails):
--
--   * enable_seqscan: claiming and settling read the whole queue, also with fresh statistics.
--   * enable_hashjoin: a claim or settlement planned for an empty queue hashes all bodies of a full one.
--   * enable_sort: the same by a merge join, which needs sorted input. So merge joins have no setting of their own, nor
--     have bitmap scans, which need a sort wherever the order matters.
--   * jit: up to PostgreSQL 17 a plan with a step that is turned off and yet needed counts as very expensive, and
--     expensive plans are compiled: a retry took 2.1 s instead of 0.02 s on PostgreSQL 15.
--
-- Which functions:
--
--   * A function of the first list plans every call: a plan from when a queue was empty reads all of a full one
--     (ADR 11). Functions that only these call, such as `pgjq.end_jobs`, need no settings of their own.
--   * A function of the second list keeps its plan from its first call in a session: it has only one (ADR 20).
--   * A function of the third list keeps its plans: it finds single rows by their keys, whatever the tables hold.
do $$
declare
    walk_indexes constant text[] := array[
        'enable_seqscan = off', 'enable_hashjoin = off', 'enable_sort = off', 'jit = off'
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
