"""The web page: see queues, jobs, failures and workers, and act. Needs the extra `web`.

`create_app` returns an ASGI application, which can be mounted in another one; `pgjq web` serves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgjq.errors import MissingExtraError

if TYPE_CHECKING:
    from pgjq.storage.base import Storage
    from pgjq.web.access import Auth

__all__ = ["create_app"]


def create_app(
    storage: Storage, *, auth: Auth | None = None, read_only: bool = False, hide_payloads: bool = False
) -> Any:
    """Return an ASGI application that shows a storage, with actions for authorised people.

    `auth` is a token, or a function of the request that returns the name of the person who makes it, or None; it may be
    a coroutine function. Without `auth` there is no login. With `read_only` there are no actions;
    `hide_payloads` hides payloads, results and checkpoints.
    """
    try:
        import jinja2
        import starlette
    except ImportError as error:
        raise MissingExtraError("web", "the web page") from error
    del jinja2, starlette
    from pgjq.web.app import make_app

    return make_app(storage, auth=auth, read_only=read_only, hide_payloads=hide_payloads)
