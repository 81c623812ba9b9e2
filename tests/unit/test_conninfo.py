"""Connection strings and URLs, as libpq gets them."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from pgjq import ValidationError
from pgjq.storage.postgres.conninfo import libpq_conninfo, parameters

TRANSLATED = {
    "postgresql+psycopg://me:word@host:5433/shop": {
        "user": "me",
        "password": "word",
        "host": "host",
        "port": "5433",
        "dbname": "shop",
    },
    "postgresql+psycopg2://host/shop": {"host": "host", "dbname": "shop"},
    "postgres+asyncpg://host/shop": {"host": "host", "dbname": "shop"},
    "PostgreSQL+asyncpg://host/shop": {"host": "host", "dbname": "shop"},
    "postgresql+psycopg://": {},
    "postgresql+psycopg://me:p%40%2F%25/raw?[#:@host/a%20b": {
        "user": "me",
        "password": "p@/%/raw?[#:",
        "host": "host",
        "dbname": "a b",
    },
    "postgresql+psycopg://me:a' b\\@host/": {"user": "me", "password": "a' b\\", "host": "host"},
    "postgresql+asyncpg://host/shop?ssl=require": {"host": "host", "dbname": "shop", "sslmode": "require"},
    "postgresql+asyncpg://host?ssl=verify-full&sslrootcert=/ca.pem": {
        "host": "host",
        "sslmode": "verify-full",
        "sslrootcert": "/ca.pem",
    },
    "postgresql+asyncpg://host?ssl=true": {"host": "host", "sslmode": "require"},
    "postgresql+asyncpg://host?timeout=2.5": {"host": "host", "connect_timeout": "3"},
    "postgresql+asyncpg://host?prepared_statement_cache_size=0&statement_cache_size=0": {"host": "host"},
    "postgresql+psycopg://host?sslmode=disable&application_name=a%20b&options=-c%20jit%3Doff": {
        "host": "host",
        "sslmode": "disable",
        "application_name": "a b",
        "options": "-c jit=off",
    },
    "postgresql+psycopg://me@/shop?host=/var/run/postgresql&port=5433": {
        "user": "me",
        "dbname": "shop",
        "host": "/var/run/postgresql",
        "port": "5433",
    },
    "postgresql+asyncpg:///shop?host=one:1&host=two:2": {"dbname": "shop", "host": "one,two", "port": "1,2"},
    "postgresql+asyncpg:///shop?host=one:1&host=two": {"dbname": "shop", "host": "one,two", "port": "1,"},
    "postgresql+psycopg2:///shop?host=one,two&port=1,2": {"dbname": "shop", "host": "one,two", "port": "1,2"},
    "postgresql+psycopg://:5433/shop?host=other": {"dbname": "shop", "host": "other", "port": "5433"},
    "postgresql+psycopg://[::1]:5433/shop": {"dbname": "shop", "host": "::1", "port": "5433"},
    "postgresql+psycopg:///shop?host=[::1]:5433": {"dbname": "shop", "host": "::1", "port": "5433"},
}
REFUSED = {
    "postgresql+foo://me:zecret@host/shop": "unknown driver 'foo'",
    "postgresql+://me:zecret@host/shop": "unknown driver ''",
    "postgresql+asyncpg://me:zecret@host/shop?command_timeout=60": "unknown parameter 'command_timeout'",
    "postgresql+psycopg://me:zecret@host/shop?no_such=zecret": "unknown parameter 'no_such'",
    "postgresql+asyncpg://me:zecret@host/shop?ssl=zecret": "ssl must be one of disable, allow, prefer, require",
    "postgresql+asyncpg://me:zecret@host/shop?timeout=zecret": "timeout must be a number",
    "postgresql+asyncpg://me:zecret@host/shop?timeout=inf": "timeout must be a number",
    "postgresql+asyncpg://me:x@zecret@host/shop": "written %40",
    "postgresql+psycopg://me:zecret@host:zecret/shop": "cannot read this URL",
    "postgresql+psycopg://me:zecret@/shop?host=host:zecret": "a port must be a number",
    "postgresql+psycopg://me:zecret%00@host/shop": "NUL",
    "password=my zecret": "connection string",
    "zecret": "connection string",
    "postgresql://me@host/shop?zecret": "connection string",
    "postgresql://me@host/shop?no_such=zecret": "no_such",
}


@pytest.mark.parametrize("url", TRANSLATED)
def test_a_url_with_a_driver_is_read_as_sqlalchemy_reads_it(url: str) -> None:
    conninfo = libpq_conninfo(url)
    assert conninfo_to_dict(conninfo) == parameters(url) == TRANSLATED[url]
    assert libpq_conninfo(conninfo) == conninfo


@pytest.mark.parametrize(
    "conninfo", ["postgresql://me:word@host/shop?sslmode=require", "postgres://host", "host=/tmp dbname='a b'", ""]
)
def test_what_libpq_reads_stays_as_it_is(conninfo: str) -> None:
    assert libpq_conninfo(conninfo) == conninfo


@pytest.mark.parametrize("url", REFUSED)
def test_what_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValidationError, match=REFUSED[url]) as refused:
        libpq_conninfo(url)
    assert "zecret" not in str(refused.value)
