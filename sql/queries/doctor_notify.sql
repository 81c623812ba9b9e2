-- Doctor: send a notification that the doctor listens for.
select pg_notify(:channel, :payload)
