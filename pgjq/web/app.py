"""The application: routes, who gets in, and errors as pages.

All pages are at one level, and links are relative: the application works under any prefix.
"""

from __future__ import annotations

import hashlib
import re
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, urlencode

import jinja2
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from pgjq.client import AsyncClient
from pgjq.deadline import limit_statements
from pgjq.errors import (
    JobNotFoundError,
    PgjqError,
    PolicyError,
    QueueNotFoundError,
    StorageUnavailableError,
    UnsupportedError,
    ValidationError,
)
from pgjq.generic_inspection import inspection_of
from pgjq.web import actions, live, pages
from pgjq.web.access import Access, Visitor, limited
from pgjq.web.formatting import FILTERS
from pgjq.web.headers import StrictHeaders
from pgjq.web.query import check_texts, link

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from starlette.requests import Request

    from pgjq.storage.base import Storage
    from pgjq.storage.inspection import Rights
    from pgjq.web.access import Auth

HERE: Final = Path(__file__).parent
KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
STATIC: Final = {path.name: path.read_bytes() for path in (HERE / "static").iterdir() if path.suffix in KINDS}
VERSION: Final = hashlib.sha256(b"".join(STATIC.values())).hexdigest()[:12]
LARGEST_FORM: Final = 65_536
RIGHTS_SECONDS: Final = 30.0
PAGE_LIMIT: Final = 2.0  # Seconds that a server may work on one statement of a page.
ACTION_LIMIT: Final = 20.0  # The same for an action; it may wait for the locks of running transactions.
STATUSES: Final[Mapping[type[PgjqError], int]] = {
    QueueNotFoundError: 404,
    JobNotFoundError: 404,
    ValidationError: 400,
    PolicyError: 409,
    UnsupportedError: 409,
    StorageUnavailableError: 503,
}
_TARGET: Final = re.compile(r"(\./|[a-z]+)(\?[^\s#]*)?")


class Web:
    """What the handlers of one application share."""

    def __init__(self, storage: Storage, auth: Auth | None, *, read_only: bool, hide_payloads: bool) -> None:
        self.client = AsyncClient(storage)
        self.inspection = inspection_of(storage)
        self.has_definitions = storage.capabilities.definitions
        self.access = Access(auth)
        self.live = live.Live(self.inspection)
        self._read_only = read_only
        self._hide_payloads = hide_payloads
        self._rights: tuple[float, Rights] | None = None
        loader = jinja2.FileSystemLoader(HERE / "templates")
        self._templates = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._templates.filters.update(cast("dict[str, Any]", FILTERS))
        shared: dict[str, Any] = {
            "link": link,
            "version": VERSION,
            "has_definitions": self.has_definitions,
            "storage": type(storage).__name__.lstrip("_"),
        }
        self._templates.globals.update(shared)

    def limited(self, visitor: Visitor) -> Visitor:
        """Return a visitor with the limits of this application."""
        return limited(visitor, read_only=self._read_only, hide_payloads=self._hide_payloads)

    async def rights(self) -> Rights:
        """Return what the storage allows, read every half minute."""
        if self._rights is None or time.monotonic() - self._rights[0] > RIGHTS_SECONDS:
            self._rights = time.monotonic(), await self.inspection.rights()
        return self._rights[1]

    async def allowed(self, visitor: Visitor) -> frozenset[str]:
        """Return the actions that a visitor may take."""
        return (await self.rights()).actions if visitor.may_act else frozenset()

    async def render(self, name: str, visitor: Visitor, request: Request, /, **values: Any) -> Response:
        """Return a page."""
        allowed = values.pop("allowed", None)
        allowed = await self.allowed(visitor) if allowed is None else allowed
        text = self.text(
            name,
            visitor=visitor,
            allowed=allowed,
            csrf_token=self.access.csrf_token(visitor) if allowed else "",
            done=pages.done_text(request.query_params),
            **values,
        )
        return HTMLResponse(text, values.get("status", 200))

    def text(self, name: str, /, **values: Any) -> str:
        """Fill a template in."""
        return self._templates.get_template(name).render(**values)

    def page(
        self, handler: Callable[..., Awaitable[Response]], *, limit: float = PAGE_LIMIT
    ) -> Callable[[Request], Awaitable[Response]]:
        """Let visitors in, limit each statement, and make a page of what goes wrong."""

        async def answer(request: Request) -> Response:
            if "token" in request.query_params:
                return self._token_in_url(request)
            visitor = await self.access.visitor(request)
            if visitor is None:
                return self.login_page(relative(request))
            visitor = self.limited(visitor)
            try:
                check_texts(request.query_params.values())
                with limit_statements(limit):
                    response = await handler(self, request, visitor)
            except PgjqError as error:
                response = await self._error_page(error, visitor, request)
            self.access.keep(request, response, visitor)
            return response

        return answer

    def action(self, handler: Callable[..., Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Let visitors act whose form comes from this page."""

        async def answer(web: Web, request: Request, visitor: Visitor) -> Response:
            form = await form_of(request)
            if not visitor.may_act or not self.access.is_csrf_token(visitor, form.get("csrf_token", ""), request):
                return await self._refusal(request, visitor)
            return await handler(web, request, visitor, form)

        return self.page(answer, limit=ACTION_LIMIT)

    async def _refusal(self, request: Request, visitor: Visitor) -> Response:
        text = (
            "This form is too old, or not from this page. Go back, reload, and try again."
            if visitor.may_act
            else "You may look, but not act."
        )
        return await self.render(
            "error.html", visitor, request, title="Not done", message=text, status=403, allowed=frozenset()
        )

    async def _error_page(self, error: PgjqError, visitor: Visitor, request: Request) -> Response:
        status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)
        return await self.render(
            "error.html", visitor, request, title="Not done", message=str(error), status=status, allowed=frozenset()
        )

    def login_page(self, target: str, *, wrong: bool = False) -> Response:
        """Return the page that asks for the token."""
        text = self.text("login.html", target=target, wrong=wrong, has_login=self.access.has_login)
        return HTMLResponse(text, 401, {"www-authenticate": "Bearer"})

    def _token_in_url(self, request: Request) -> Response:
        """Trade a token in the URL for a cookie, and take it out of the address."""
        target = relative(request)
        if not self.access.is_token(request.query_params["token"]):
            return self.login_page(target, wrong=True)
        response = RedirectResponse(target, 303)
        self.access.remember(request, response)
        return response


async def login(web: Web, request: Request) -> Response:
    """Start a session with the token of the form."""
    target = checked_target((form := await form_of(request)).get("next", ""))
    is_ours = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    if not is_ours or not web.access.is_token(form.get("token", "").strip()):
        return web.login_page(target, wrong=True)
    response = RedirectResponse(target, 303)
    web.access.remember(request, response)
    return response


async def show_login(web: Web, request: Request) -> Response:
    """Ask for the token."""
    return web.login_page(checked_target(request.query_params.get("next", "")))


async def logout(web: Web, request: Request, visitor: Visitor, form: dict[str, str]) -> Response:
    """End the session."""
    del visitor, form
    response = RedirectResponse("./", 303)
    web.access.forget(request, response)
    return response


async def static(request: Request) -> Response:
    """Return a file of the page's own; its name carries a version, so browsers may keep it."""
    name = request.path_params["name"]
    if name not in STATIC:
        return Response(status_code=404)
    return Response(
        STATIC[name],
        media_type=KINDS[Path(name).suffix],
        headers={"cache-control": "public, max-age=31536000, immutable"},
    )


def make_app(storage: Storage, *, auth: Auth | None, read_only: bool, hide_payloads: bool) -> Starlette:
    """Return the application."""
    web = Web(storage, auth, read_only=read_only, hide_payloads=hide_payloads)

    def bound(handler: Callable[..., Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                return await handler(web, request)
            except ValidationError:
                return web.login_page("./", wrong=True)

        return answer

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        yield
        await storage.operations("async").close()

    shown = {**pages.PAGES, "/live": live.events}
    routes = [
        *(Route(path, web.page(handler), methods=["GET"]) for path, handler in shown.items()),
        *(Route(path, web.action(handler), methods=["POST"]) for path, handler in actions.ACTIONS.items()),
        Route("/logout", web.action(logout), methods=["POST"]),
        Route("/login", bound(show_login), methods=["GET"]),
        Route("/login", bound(login), methods=["POST"]),
        Route("/static/{name}", static, methods=["GET"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(StrictHeaders)], lifespan=lifespan)


async def form_of(request: Request) -> dict[str, str]:
    """Read a form; of fields that occur twice, the last one."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_FORM:
            raise ValidationError("the form is too large")
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise ValidationError("the form cannot be read") from error
    check_texts(form.values())
    return form


def relative(request: Request) -> str:
    """Return the address of a request as a relative one, without a token in it."""
    pairs = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    page = request.url.path.rpartition("/")[2] or "./"
    return f"{page}?{urlencode(pairs)}" if pairs else page


def checked_target(target: str) -> str:
    """Return where to go next, if it is a page of this application."""
    return target if _TARGET.fullmatch(target) else "./"
