"""Connection strings: libpq's, and SQLAlchemy's with a driver (`postgresql+asyncpg://…`).

`libpq_conninfo` turns both into a string for libpq; pgjq connects with its own driver, whichever the URL names.
`parameters` returns the parameters of such a string. Errors name a parameter and never repeat a value
(`pgjq/redaction.py`). A URL that libpq can only read by taking a part of a password for a host, a port or a database is
refused: the server or the driver would repeat that part.

| parameter of a SQLAlchemy URL | becomes |
|---|---|
| libpq's own, such as `sslmode` or `application_name` | the same |
| `ssl` (asyncpg) | `sslmode` |
| `timeout` (asyncpg, pg8000) | `connect_timeout`, in whole seconds |
| `host` and `port`, several times or as `host:port` | libpq's lists of hosts and ports |
| parameters that size the caches of the driver and of SQLAlchemy | nothing: pgjq has no such cache |
| any other | `ValidationError` |
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgjq.errors import MissingExtraError, ValidationError
from pgjq.redaction import HIDDEN, read_redacted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy.engine import URL

_DRIVERS: Final = ("psycopg", "psycopg_async", "psycopg2", "psycopg2cffi", "asyncpg", "pg8000")
_WITH_DRIVER: Final = re.compile(r"postgres(?:ql)?\+([^:/]*)://", re.IGNORECASE)
_URL_PATH: Final = re.compile(r"postgres(?:ql)?://[^/?]*/[^?]*@")
# SQLAlchemy would read this as a user with an @, or as a database with an @.
_TWO_HOSTS: Final = re.compile(r"postgresql://(?:[^:/]*@[^:/]*:[^@]*|[^:/@?]*/[^?]*)@")
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_CACHES: Final = frozenset(
    {
        "async_fallback",
        "max_cacheable_statement_size",
        "max_cached_statement_lifetime",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "statement_cache_size",
    }
)
_UNREADABLE: Final = "this is not a PostgreSQL connection string or URL"
_REFUSED: Final = "this PostgreSQL URL cannot be used"


def libpq_conninfo(conninfo: str) -> str:
    """Return a connection string for libpq, or raise ValidationError without the password."""
    named = _WITH_DRIVER.match(conninfo) if isinstance(conninfo, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if named is None:
        _read(conninfo)
        return conninfo
    if named[1] not in _DRIVERS:
        driver = named[1] if re.fullmatch(r"\w*", named[1]) else HIDDEN
        raise ValidationError(f"{_REFUSED}: unknown driver {driver!r}; write postgresql://…, without one")
    # SQLAlchemy 2 has no dialect named postgres; libpq and pgjq accept that name.
    return _translated(_parsed(f"postgresql://{conninfo[named.end() :]}"))


def parameters(conninfo: str) -> dict[str, Any]:
    """Return the parameters of a connection string, by libpq's names."""
    return _read(libpq_conninfo(conninfo))


def from_parameters(given: Mapping[str, Any]) -> str:
    """Return a connection string of another library's parameters, libpq's ones only."""
    known = _libpq_names()
    return make_conninfo("", **{name: value for name, value in given.items() if name in known and value})


def _libpq_names() -> set[str]:
    return {option.keyword.decode() for option in pq.Conninfo.get_defaults()}


def _read(conninfo: str) -> dict[str, Any]:
    found = read_redacted(
        lambda: conninfo_to_dict(conninfo),
        str(conninfo),
        _UNREADABLE,
        psycopg.ProgrammingError,
        AttributeError,
        ValueError,
    )
    if not all(port.isdecimal() or not port for port in str(found.get("port", "")).split(",")):
        raise ValidationError(f"{_UNREADABLE}: a port must be a number; a / in a password is written %2F")
    if "@" in str(found.get("host", "")):
        raise ValidationError(f"{_UNREADABLE}: an @ in a user's name or a password is written %40")
    if "\0" in conninfo:
        raise ValidationError(f"{_UNREADABLE}: it contains a NUL character")
    if _URL_PATH.match(conninfo):
        raise ValidationError(f"{_UNREADABLE}: an @ comes after the first /; a / in a password is written %2F")
    return found


def _parsed(url: str) -> URL:
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError as error:
        raise MissingExtraError("migrate", "a URL that names a driver (postgresql:// names none)") from error

    if _TWO_HOSTS.match(url):
        raise ValidationError(f"{_REFUSED}: an @ in a user's name or a password is written %40")
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        pass  # SQLAlchemy's message may repeat the URL, so it is not chained.
    raise ValidationError(f"{_REFUSED}: SQLAlchemy cannot read this URL")


def _translated(url: URL) -> str:
    query = {name: (value,) if isinstance(value, str) else value for name, value in url.query.items()}
    hosts, ports = _hosts(url, query.pop("host", ()), query.pop("port", ()))
    own = {"host": hosts, "port": ports, "user": url.username, "password": url.password, "dbname": url.database}
    given = {name: value for name, value in own.items() if value} | _options(query)
    if any("\0" in value for value in given.values()):
        raise ValidationError(f"{_REFUSED}: it contains a NUL character")
    return make_conninfo("", **given) or "postgresql://"


def _hosts(url: URL, hosts: Iterable[str], ports: Iterable[str]) -> tuple[str, str]:
    """Return libpq's lists of hosts and ports; a queried host may have a port, a directory not."""
    found = [_with_port(host) for several in hosts for host in several.split(",")] or [(url.host or "", "")]
    listed = [port for several in ports for port in several.split(",")] or [str(url.port or "")]
    if any(port for _, port in found):
        listed = [port for _, port in found]
    if not all(port.isdecimal() or not port for port in listed):
        raise ValidationError(f"{_REFUSED}: a port must be a number")
    if any("@" in host for host, _ in found):
        raise ValidationError(f"{_REFUSED}: an @ in a user's name or a password is written %40")
    return ",".join(host for host, _ in found), ",".join(listed)


def _with_port(host: str) -> tuple[str, str]:
    if host.startswith("[") and (end := host.find("]")) > 0:
        return host[1:end], host[end + 1 :].removeprefix(":")
    name, colon, port = host.partition(":")
    return (name, port) if colon and not host.startswith("/") and ":" not in port else (host, "")


def _options(query: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    known = _libpq_names()
    options: dict[str, str] = {}
    for name, values in query.items():
        match name:
            case "ssl":
                options["sslmode"] = _ssl_mode(values[-1])
            case "timeout":
                options["connect_timeout"] = _seconds(values[-1])
            case name if name in known:
                options[name] = values[-1]
            case name if name not in _CACHES:
                raise ValidationError(f"{_REFUSED}: unknown parameter {name!r}; leave it out, or use one of libpq's")
            case _:
                continue
    return options


def _ssl_mode(value: str) -> str:
    mode = "require" if value == "true" else value  # libpq accepts ssl=true, JDBC's form, in the same way.
    if mode not in _SSL_MODES:
        raise ValidationError(f"{_REFUSED}: ssl must be one of {', '.join(_SSL_MODES)}")
    return mode


def _seconds(value: str) -> str:
    try:
        return str(math.ceil(float(value)))
    except (ValueError, OverflowError):
        pass  # Not chained: the message repeats the value.
    raise ValidationError(f"{_REFUSED}: timeout must be a number of seconds")
