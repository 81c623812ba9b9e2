-- A column that the version before does not know: it has a default, so that old code may leave it out.
alter table pgjq.job add column attention smallint not null default 0;
