"""No password of a URL or a connection string is ever said, however broken it is."""

from __future__ import annotations

import logging
import traceback
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as running
from hypothesis import strategies as st

import pgjq
from pgjq.migrate import status
from pgjq.redaction import redact
from pgjq.storage.postgres.conninfo import libpq_conninfo
from tests.cli.run_command import run

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "zecret"
# Nothing listens on port 1: a URL that can be read is an error at once.
PLACE = "127.0.0.1:1"
SCHEMES = [
    "postgresql",
    "postgres",
    "postgresql+psycopg",
    "postgresql+asyncpg",
    "postgresql+foo",
    "redis",
    "rediss",
    "mysql",
    "file",
    "embedded",
    "unix",
]
PASSWORDS = [
    "zecret",
    "zecret@",
    "@zecret",
    "a@zecret",
    "zecret:x",
    ":zecret",
    "zecret/x",
    "/zecret",
    "12/zecret",
    "zecret#x",
    "#zecret",
    "zecret?x",
    "?zecret=1",
    "?zecret",
    "zecret%",
    "%zecret",
    "%zzzecret",
    "zecret%00",
    " zecret",
    "ze zecret",
    "[zecret",
    "zecret]",
    "[zecret]",
    "'zecret",
    'ze"zecret',
    "can't 'zecret",
    "zecret=",
    "zecret&x=1",
    "é zecret",
    "zecret\\",
    "zecret\n",
    "zecret\0",
    "℀zecret",
    "{zecret}",
]
SHAPES = [
    "{scheme}://me:{password}@{place}/db",
    "{scheme}//me:{password}@{place}/db",
    "{scheme}:me:{password}@{place}/db",
    "{scheme}:/me:{password}@{place}/db",
    "me:{password}@{place}/db",
    "{password}@{place}",
    "{password}",
    "{scheme}://me:{password}",
    "{scheme}://me:{password}/db",
    "{scheme}://{password}@{place}",
    "{scheme}://:{password}@{place}",
    "{scheme}://me:{password}@[::1",
    "{scheme}://me:{password}@[::1]x",
    "{scheme}://me:{password}@{place}:port/db",
    "{scheme}://me:{password}@{place} /db",
    " {scheme}://me:{password}@{place}/db",
    "{scheme}://me:{password}@{place}/db?x",
    "{scheme}://me@{place}/db?password={password}",
    "{scheme}://me@{place}/db?password={password}&no_such=1",
    "host={place} user=me password={password} dbname=db",
    "password={password} host",
    "password='{password} host=x",
    "host=127.0.0.1 port=1 user=me password={password}",
    "jdbc:{scheme}://me:{password}@{place}/db",
]


def open_it(url: str) -> None:
    with closing(pgjq.open_storage(url)) as storage:
        use(storage)


def use(storage: Any) -> None:
    assert SECRET not in repr(storage)
    if not isinstance(storage, pgjq.FileStorage | pgjq.MemoryStorage):
        pgjq.Client(storage).enqueue("q", "a", 1)


def open_redis(url: str) -> None:
    with closing(pgjq.RedisStorage(url)) as storage:
        use(storage)


def open_postgres(url: str) -> None:
    with closing(pgjq.PostgresStorage(url)) as storage:
        use(storage)


WAYS: list[Callable[[str], Any]] = [open_redis, libpq_conninfo, status]
USING: list[Callable[[str], Any]] = [open_it, open_postgres]


def said(error: BaseException | None) -> list[str]:
    """Collect everything that an exception and those behind it say."""
    if error is None:
        return []
    own = [str(error), repr(error), "".join(traceback.format_exception_only(error))]
    return [*own, *said(error.__cause__), *said(error.__context__)]


def check(ways: list[Callable[[str], Any]], url: str, caplog: pytest.LogCaptureFixture) -> None:
    for way in ways:
        error: pgjq.PgjqError | None = None
        try:
            way(url)
        except pgjq.PgjqError as raised:
            error = raised
        assert [text for text in said(error) if SECRET in text] == [], way
    assert SECRET not in caplog.text


@pytest.mark.parametrize("shape", SHAPES)
def test_no_way_to_open_a_storage_says_the_password(shape: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for scheme in SCHEMES if "{scheme}" in shape else SCHEMES[:1]:
        for password in PASSWORDS:
            if "@" in password and "{place}" not in shape and "{scheme}" in shape:
                continue  # What follows the @ is the host then; no parser can tell.
            url = shape.format(scheme=scheme, password=password, place=PLACE)
            if not url.startswith(("embedded", "file")):
                check(WAYS if scheme == SCHEMES[0] else WAYS[:2], url, caplog)
            with suppress(ValueError):
                if scheme not in ("embedded", "file") or "://me" in url:
                    check([refuse], url, caplog)


def refuse(url: str) -> None:
    """Open a storage without using it."""
    storage = pgjq.open_storage(url)
    assert SECRET not in repr(storage)
    storage.close()


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_connection_that_fails_does_not_say_it(password: str, caplog: pytest.LogCaptureFixture) -> None:
    for scheme in ("postgresql", "redis"):
        check(USING[:1], f"{scheme}://me:{password}@{PLACE}/0", caplog)


@pytest.mark.parametrize("command", [["status", "q", "a"], ["migrate", "status"], ["migrate", "down"], ["queues"]])
@pytest.mark.parametrize("shape", SHAPES[:8])
def test_no_command_says_the_password(shape: str, command: list[str]) -> None:
    for scheme, password in (
        ("postgresql", "zecret"),
        ("postgres", "a/zecret"),
        ("mysql", "@zecret"),
        ("redis", "ze zecret"),
    ):
        url = shape.format(scheme=scheme, password=password, place=PLACE)
        result = run(*command, url=url, typed="n\n")
        assert SECRET not in result.output + result.stderr
        assert result.exit_code != 0


@running(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SHAPES), st.sampled_from(SCHEMES[:6]), st.text(max_size=6), st.text(max_size=6))
def test_whatever_is_around_the_password_it_is_not_said(
    caplog: pytest.LogCaptureFixture, shape: str, scheme: str, before: str, after: str
) -> None:
    if "{place}" not in shape and "@" in before:
        return
    url = shape.format(scheme=scheme, password=before + SECRET + after, place=PLACE)
    check(WAYS[:2], url, caplog)


def test_a_parameter_that_is_unknown_is_named() -> None:
    said_of = redact('invalid URI query parameter: "no_such"', "postgresql://me:zecret@host/db?no_such=1")
    assert said_of == 'invalid URI query parameter: "no_such"'
    hidden = redact('invalid URI query parameter: "zecret"', "postgresql://me:x?zecret=1@host/db")
    assert hidden == "invalid URI query parameter: …"


def test_a_message_that_repeats_the_whole_url_is_hidden() -> None:
    assert redact("cannot parse postgresql://me:zecret@host/db", "postgresql://me:zecret@host/db") == "…"
