create or replace function pgjq.schema_version() returns integer
language sql immutable parallel safe
return 1;

drop function pgjq.claim_with_attention;
drop index pgjq.job_worker;
alter table pgjq.job drop column attention;
