-- End an action: write down how many jobs it changed.
select pgjq.end_action(:id::bigint, :count::bigint)
