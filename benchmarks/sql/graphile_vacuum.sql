-- Do what autovacuum would do soon, so that it does not do it in the middle of a measurement.
vacuum (analyze) graphile_worker._private_jobs
