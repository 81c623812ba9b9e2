"""Access: which requests may see the page, and which may act.

* A token is accepted in the login form, once as `?token=` (then a cookie replaces it), or as a Bearer header, and is
  compared in constant time. The cookie holds a signed random number, not the token, and lapses after `SESSION`.
* A function of the request names the person instead; then the page has no login form.
* Without the token, requests from this machine (`is_local`) may read, but see no contents of jobs.
* A form carries `csrf_token`: a code of the session's number under a key that other sites do not know.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

Auth = str | Callable[[Any], str | Awaitable[str | None] | None]

SESSION: Final = 12 * 3600
COOKIE: Final = "pgjq_session"
CSRF_COOKIE: Final = "pgjq_csrf"
# Headers that proxies add, beside all that begin with x-forwarded.
FORWARDED: Final = frozenset((
    "forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-original-forwarded-for",
    "x-original-host",
    "x-envoy-external-address", "true-client-ip", "cf-connecting-ip", "fastly-client-ip", "fly-client-ip",
))  # fmt: skip
_PORT: Final = re.compile(r":\d*$")
LOCAL_NAMES: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person who makes a request. `nonce` is the number of the session, for codes in forms."""

    name: str
    may_act: bool = True
    may_read_content: bool = True
    nonce: str = ""
    has_session: bool = False


class Access:
    """The rules of one application."""

    def __init__(self, auth: Auth | None) -> None:
        if isinstance(auth, str) and not auth:
            raise ValidationError("auth must not be an empty token")
        if not (auth is None or isinstance(auth, str) or callable(auth)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValidationError(f"auth must be a token or a function of the request, not {auth!r}")
        self._auth = auth
        self._token = auth.encode() if isinstance(auth, str) else None
        self._key = hashlib.sha256(self._token or secrets.token_bytes()).digest()

    @property
    def has_login(self) -> bool:
        """Whether a token can be given in a form."""
        return self._token is not None

    async def visitor(self, request: Request) -> Visitor | None:
        """Return who makes a request, or None if that is not known and the page is closed."""
        if callable(self._auth):
            return await self._named(request)
        if self._token is not None:
            if (bearer := _bearer(request)) is not None:
                return Visitor("token", nonce="bearer") if self.is_token(bearer) else None
            if (nonce := self._session_nonce(request.cookies.get(COOKIE, ""))) is not None:
                return Visitor("token", nonce=nonce, has_session=True)
        return Visitor("local reader", may_act=False, may_read_content=False) if is_local(request) else None

    async def _named(self, request: Request) -> Visitor | None:
        assert callable(self._auth)  # noqa: S101
        name = self._auth(request)
        if inspect.isawaitable(name):
            name = await name
        if not name:
            return None
        return Visitor(str(name), nonce=request.cookies.get(CSRF_COOKIE) or secrets.token_urlsafe(24))

    def is_token(self, given: str) -> bool:
        """Compare with the token, in constant time."""
        return self._token is not None and hmac.compare_digest(given.encode(errors="replace"), self._token)

    def csrf_token(self, visitor: Visitor) -> str:
        """Return the code that forms of this visitor carry."""
        key = visitor.nonce.encode() if callable(self._auth) else self._key
        return _code(key, f"csrf {visitor.nonce} {visitor.name}")

    def is_csrf_token(self, visitor: Visitor, given: str, request: Request) -> bool:
        """Whether a form comes from this page and this visitor."""
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        if callable(self._auth) and CSRF_COOKIE not in request.cookies:
            return False
        return hmac.compare_digest(given.encode(errors="replace"), self.csrf_token(visitor).encode())

    def remember(self, request: Request, response: Response) -> None:
        """Start a session."""
        stated = f"{secrets.token_urlsafe(24)}.{int(time.time()) + SESSION}"
        _set_cookie(request, response, COOKIE, f"{stated}.{_code(self._key, stated)}", SESSION)

    def keep(self, request: Request, response: Response, visitor: Visitor) -> None:
        """Keep the number that a visitor's forms are tied to, where the function names people."""
        if callable(self._auth) and request.cookies.get(CSRF_COOKIE) != visitor.nonce:
            _set_cookie(request, response, CSRF_COOKIE, visitor.nonce, None)

    def forget(self, request: Request, response: Response) -> None:
        """End a session."""
        response.delete_cookie(COOKIE, path=_path(request))

    def _session_nonce(self, cookie: str) -> str | None:
        nonce, _, rest = cookie.partition(".")
        expires, _, code = rest.partition(".")
        if not hmac.compare_digest(code.encode(errors="replace"), _code(self._key, f"{nonce}.{expires}").encode()):
            return None
        return nonce if expires.isdecimal() and int(expires) > time.time() else None


def limited(visitor: Visitor, *, read_only: bool, hide_payloads: bool) -> Visitor:
    """Return a visitor with the limits of the application."""
    return replace(
        visitor,
        may_act=visitor.may_act and not read_only,
        may_read_content=visitor.may_read_content and not hide_payloads,
    )


def is_local(request: Request) -> bool:
    """Whether a request came from this machine, by its address and name, through no proxy.

    The name in `Host` keeps out pages of other sites whose names were pointed at this machine.
    """
    host = _PORT.sub("", request.headers.get("host", ""))
    if request.client is None or host not in LOCAL_NAMES or any(map(_is_of_a_proxy, request.headers)):
        return False
    try:
        return ip_address(request.client.host).is_loopback and request.scope.get("http_version") != "1.0"
    except ValueError:
        return False


def _is_of_a_proxy(header: str) -> bool:
    return header in FORWARDED or header.startswith("x-forwarded")


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _code(key: bytes, text: str) -> str:
    digest = hmac.new(key, text.encode(errors="replace"), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _path(request: Request) -> str:
    return request.scope.get("root_path") or "/"


def _set_cookie(request: Request, response: Response, name: str, value: str, seconds: int | None) -> None:
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
