-- The least that keeps a payload under a name.
create table bare (id text primary key, payload bytea not null)
