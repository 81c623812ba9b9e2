-- Warn: notify subscribers of a job that a worker has put back, because it cannot run the job's task.
if has_subscribers then
    events[1] = {'warning', request.id, cjson.null, request.count, cjson.null, request.reason, request.task}
end
write_changes()
