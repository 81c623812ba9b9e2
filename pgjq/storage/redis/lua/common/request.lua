-- Common beginning of every queue script: the keys, the time, the fields of a job's record, and shared functions.
--
-- Rules
--   * KEYS are those of one queue, in the order of keys.py, and share a hash tag.
--   * Times are in microseconds since the epoch, by this server's clock. A test may pass another time: ARGV[1].
--   * A script reads first and then writes. Functions collect the changes in Lua's memory, and `write_changes` writes
--     them, with one command for each key and not for each job.
--   * A full server (maxmemory) refuses a script at its first write or not at all, so that nothing is ever half-written.
--     Scripts that add jobs begin with a write that a full server refuses; scripts that work on stored jobs begin with
--     one that it allows, and so can always finish.
local META, JOBS, PAYLOADS, IDS, ORDER, READY, WAITING, QUEUED, PROCESSING, FAILING, CHECKPOINTS, OUTCOMES, EXPIRING,
    PRUNABLE, ATTEMPTS_MADE = unpack(KEYS)
local LIVE = {queued = QUEUED, processing = PROCESSING, failing = FAILING}

local QUEUE, EVENTS, WAKE, RESULTS, ALWAYS_PUBLISH = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local request = cjson.decode(ARGV[7])
local BLOBS = 7
local CHUNK = 4000
local MAX_NOTIFIED_OUTCOME = 4096

local time = redis.call('TIME')
local SERVER_TIME = time[1] * 1000000 + time[2]
local NOW = ARGV[1] == '' and SERVER_TIME or tonumber(ARGV[1])

-- A job's record is an array; `false` means "none".
local ID, STATE, PRIORITY, MAX_ATTEMPTS, RESULT_TTL, SINGLETON_KEY, OPTIONS, RETENTION, DELETE_AFTER, CREATED, RUN_AT,
    ATTEMPTS, LEASE, TOKEN, STALLED, CANCEL_REQUESTED, WORKER, STARTED, EXPIRE_AT, FINISHED, LEASE_DURATION,
    MAX_STALLED, REQUEUE_EXHAUSTED, AWAITED, STALLED_ON, SUPERSEDED, CLAIM_ID, TASK, HEADERS =
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29

local function or_false(value)
    if value == cjson.null or value == nil then
        return false
    end
    return value
end

-- cjson keeps only fourteen digits of a number, so larger numbers are sent as text.
local function as_text(number)
    return number and string.format('%.0f', number) or cjson.null
end

local function to_micros(seconds)
    return math.floor(seconds * 1000000 + 0.5)
end
