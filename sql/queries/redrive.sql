-- Send dead letters back. Guarantees: sql/functions/0001_dead_letters.sql.
select r.sent from pgjq.redrive(:queue::text, :limit::integer, :target::text) as r (sent)
