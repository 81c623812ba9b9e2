-- How long may this session be idle inside a transaction? Takes no snapshot, so that a handler can still choose the
-- isolation level of its transaction.
show idle_in_transaction_session_timeout
