-- Do what autovacuum would do soon, so that it does not do it in the middle of a measurement.
vacuum (analyze) pgqueuer, pgqueuer_log
