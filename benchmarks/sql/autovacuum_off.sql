-- Leave the statistics as they are, however wrong they become.
alter table pgjq.body_default set (autovacuum_enabled = false);
alter table pgjq.job_default set (autovacuum_enabled = false);
alter table pgjq.done_default set (autovacuum_enabled = false);
alter table pgjq.progress_default set (autovacuum_enabled = false);
