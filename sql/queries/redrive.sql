-- Send dead letters back. See sql/functions/0001_bury.sql for what holds.
select r.sent from pgjq.redrive(:queue::text, :limit::integer, :target::text) as r (sent)
