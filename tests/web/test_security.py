"""Who gets in, who may act, and what a hostile name, id, payload or error can do: nothing."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.testclient import TestClient

import pgjq
from pgjq.outcome import Failed
from pgjq.web import create_app, live
from pgjq.web.access import Visitor
from pgjq.web.app import Web
from tests.web.conftest import BEARER, TOKEN, Site, csrf_token, fill, run

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = ("/", "/queue?name=mail", "/jobs", "/job?queue=mail&id=broken", "/failures", "/workers", "/audit", "/live")
HOSTILE = "\"'><script>alert(1)</script>{{ 7 * 7 }}<img src=x onerror=alert(1)>/../%2e?&#"
FORM = {"action": "retry", "queue": "mail", "id": "broken"}


@pytest.fixture
def storage() -> Iterator[pgjq.MemoryStorage]:
    storage = pgjq.MemoryStorage()
    yield storage
    storage.close()


def local(app: Any, **headers: str) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1:8008", client=("127.0.0.1", 5000), headers=headers)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"cookie": "pgjq_session=a.99999999999.b"}])
def test_a_stranger_gets_the_login_page(site: Site, page: str, headers: dict[str, str]) -> None:
    answer = site.browser.get(page, headers=headers)
    assert answer.status_code == 401
    assert 'name="token"' in answer.text
    assert "mail" not in answer.text.partition("<body")[2].replace(page.lstrip("/").replace("&", "&amp;"), "")


def test_a_stranger_cannot_act(site: Site) -> None:
    code = csrf_token(site.get("/job?queue=mail&id=broken"))
    assert site.browser.post("/act-job", data=FORM | {"csrf_token": code}).status_code == 401
    assert site.client.get_status("mail", "broken").state == "failed"


def test_the_login_form_gives_a_cookie_and_not_the_token(site: Site) -> None:
    wrong = site.browser.post("/login", data={"token": "wrong", "next": "jobs"})
    assert (wrong.status_code, "not the token" in wrong.text) == (401, True)
    right = site.browser.post("/login", data={"token": TOKEN, "next": "jobs?state=failed"}, follow_redirects=False)
    assert (right.status_code, right.headers["location"]) == (303, "jobs?state=failed")
    cookie = right.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    page = site.browser.get("/job?queue=mail&id=broken")
    assert page.status_code == 200
    form = FORM | {"csrf_token": csrf_token(page.text)}
    assert "queued again" in site.browser.post("/act-job", data=form).text
    site.browser.post("/logout", data={"csrf_token": form["csrf_token"]})
    assert site.browser.get("/").status_code == 401


def test_a_cookie_is_secure_under_https(storage: pgjq.MemoryStorage) -> None:
    with TestClient(create_app(storage, auth=TOKEN), base_url="https://testserver") as browser:
        answer = browser.post("/login", data={"token": TOKEN}, follow_redirects=False)
    assert "Secure" in answer.headers["set-cookie"]


def test_a_token_in_the_address_is_traded_at_once(site: Site) -> None:
    answer = site.browser.get(f"/jobs?token={TOKEN}&state=failed", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "jobs?state=failed")
    assert site.browser.get("/jobs?token=wrong&state=failed").status_code == 401
    assert "token=" not in site.browser.get("/").text


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x", "jobs\r\nx: y"]
)
def test_the_login_leads_nowhere_else(site: Site, target: str) -> None:
    answer = site.browser.post("/login", data={"token": TOKEN, "next": target}, follow_redirects=False)
    assert answer.headers["location"] == "./"


def test_a_form_of_another_site_is_refused(site: Site) -> None:
    code = csrf_token(site.get("/job?queue=mail&id=broken"))
    for form, headers in (
        (FORM, {}),
        (FORM | {"csrf_token": ""}, {}),
        (FORM | {"csrf_token": code[:-1] + ("A" if code[-1] != "A" else "B")}, {}),
        (FORM | {"csrf_token": code}, {"sec-fetch-site": "cross-site"}),
        (FORM | {"csrf_token": code}, {"sec-fetch-site": "same-site"}),
    ):
        assert site.browser.post("/act-job", data=form, headers=BEARER | headers).status_code == 403
    assert site.browser.get("/act-job", headers=BEARER).status_code == 405
    assert site.client.get_status("mail", "broken").state == "failed"


def test_a_session_does_not_accept_the_code_of_another(site: Site) -> None:
    codes = []
    for _ in range(2):
        site.browser.cookies.clear()
        page = site.browser.get(f"/job?queue=mail&id=broken&token={TOKEN}")
        codes.append(csrf_token(page.text))
    assert codes[0] != codes[1]
    assert site.browser.post("/act-job", data=FORM | {"csrf_token": codes[0]}).status_code == 403


def test_a_function_names_people(storage: pgjq.MemoryStorage) -> None:
    fill(storage)

    async def auth(request: Request) -> str | None:
        return request.headers.get("x-user")

    with TestClient(create_app(storage, auth=auth), headers={"x-user": "ann <b>"}) as browser:
        page = browser.get("/job?queue=mail&id=broken")
        code = csrf_token(page.text)
        assert "queued again" in browser.post("/act-job", data=FORM | {"csrf_token": code}).text
        assert "ann &lt;b&gt;" in browser.get("/audit").text
        assert browser.post("/act-job", data=FORM | {"csrf_token": code}, headers={"x-user": "bob"}).status_code == 403
        closed = browser.get("/", headers={"x-user": ""})
        assert (closed.status_code, 'name="token"' in closed.text) == (401, False)
        browser.cookies.clear()
        assert browser.post("/act-job", data=FORM | {"csrf_token": code}).status_code == 403


def test_without_auth_no_one_gets_in(storage: pgjq.MemoryStorage) -> None:
    with TestClient(create_app(storage)) as browser:
        assert browser.get("/").status_code == 401
        assert browser.post("/login", data={"token": ""}).status_code == 401
    with pytest.raises(pgjq.ValidationError, match="empty token"):
        create_app(storage, auth="")


def test_this_machine_may_look_without_the_token(storage: pgjq.MemoryStorage) -> None:
    fill(storage)
    app = create_app(storage, auth=TOKEN)
    with local(app) as browser:
        for page in PAGES[:-1]:
            answer = browser.get(page)
            assert answer.status_code == 200
            assert 'method="post"' not in answer.text
            assert "order&#34;" not in answer.text
        assert browser.post("/act-job", data=FORM).status_code == 403
    for headers in (
        {"host": "evil.example"},
        {"x-forwarded-for": "203.0.113.9"},
        {"via": "1.1 proxy"},
        {"forwarded": "for=203.0.113.9"},
        {"x-forwarded-proto": "https"},
        {"x-forwarded-port": "443"},
        {"cf-connecting-ip": "203.0.113.9"},
        {"true-client-ip": "203.0.113.9"},
    ):
        with local(app, **headers) as browser:
            assert browser.get("/").status_code == 401


def test_read_only_is_enforced_on_the_server(storage: pgjq.MemoryStorage) -> None:
    fill(storage)
    with TestClient(create_app(storage, auth=TOKEN)) as other:
        code = csrf_token(other.get("/job?queue=mail&id=broken", headers=BEARER).text)
    with TestClient(create_app(storage, auth=TOKEN, read_only=True), headers=BEARER) as browser:
        assert all('method="post"' not in browser.get(page).text for page in PAGES[:-1])
        assert browser.post("/act-job", data=FORM | {"csrf_token": code}).status_code == 403
    assert pgjq.Client(storage).get_status("mail", "broken").state == "failed"


def test_payloads_can_be_hidden(storage: pgjq.MemoryStorage) -> None:
    fill(storage)
    with TestClient(create_app(storage, auth=TOKEN, hide_payloads=True), headers=BEARER) as browser:
        assert "order&#34;" not in browser.get("/job?queue=mail&id=broken").text
        assert "&#34;n&#34;" not in browser.get("/job?queue=mail&id=done").text


@pytest.mark.parametrize("page", [*PAGES[:-1], "/login", "/static/style.css", "/nothing"])
def test_every_answer_keeps_browsers_strict(site: Site, page: str) -> None:
    headers = site.browser.get(page, headers=BEARER).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
    assert headers["referrer-policy"] == "same-origin"


def test_hostile_texts_are_shown_and_not_run(storage: pgjq.MemoryStorage) -> None:
    client = pgjq.Client(storage)
    client.enqueue(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, singleton_key=HOSTILE, max_attempts=1)
    run(storage, HOSTILE, Failed(pgjq.JobError(HOSTILE, HOSTILE, HOSTILE)))
    with TestClient(create_app(storage, auth=TOKEN), headers=BEARER) as browser:
        waiting, seen = {"./"}, set[str]()
        while waiting:
            page = waiting.pop()
            seen.add(page)
            answer = browser.get("/" + page.removeprefix("./"))
            assert answer.status_code == 200, page
            assert not re.search(
                r"<script(?! src=\"static/)|<img|49<| on\w+=| style=|javascript:",
                answer.text.replace("onerror=alert", ""),
            )
            links = {unescape(found) for found in re.findall(r'<a [^>]*href="([^"]+)"', answer.text)}
            waiting |= {link for link in links if not link.startswith("#")} - seen
        assert {"job", "queue", "failures", "jobs"} <= {re.split(r"\W", page)[0] for page in seen}


@pytest.mark.parametrize("page", ["/queue?name=%00", "/jobs?id=a%00", "/job?queue=%00&id=broken", "/?q=%00"])
def test_a_text_that_cannot_be_stored_is_refused(site: Site, page: str) -> None:
    assert "NUL character" in site.get(page, 400)
    assert "NUL character" in site.post("/act-job", 400, action="retry", queue="\0", id="broken")


def test_streams_are_bounded_and_share_one_read(storage: pgjq.MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST", 2)
    reads: list[str] = []

    class Counting:
        async def mark(self) -> str:
            reads.append("read")
            return "same"

    async def open_three() -> list[int]:
        web = Web(storage, TOKEN, read_only=False, hide_payloads=False)
        web.live._inspection = Counting()  # type: ignore[assignment]
        app = Starlette()
        request = Request({"type": "http", "app": app, "headers": []})
        streams: list[Any] = []
        statuses: list[int] = []
        for _ in range(3):
            answer = await live.events(web, request, Visitor("ann"))
            statuses.append(answer.status_code)
            if isinstance(answer, StreamingResponse):
                streams.append(answer.body_iterator)
                assert [await anext(streams[-1]), await anext(streams[-1])] == [
                    "retry: 3000\n\n",
                    "event: change\ndata: now\n\n",
                ]
        for stream in streams:
            await stream.aclose()
        assert web.live.open == 0
        return statuses

    assert asyncio.run(open_three()) == [200, 200, 503]
    assert reads == ["read"]


def test_a_large_form_is_refused(site: Site) -> None:
    assert site.browser.post("/act-job", data={"id": "x" * 100_000}, headers=BEARER).status_code == 400
    assert site.browser.post("/login", data={"token": "x" * 100_000}).status_code == 401
    assert site.browser.post("/login", content=b"token=%ff%00&" * 200).status_code == 401


def test_what_the_role_may_not_do_is_not_offered(own_database: str) -> None:
    pgjq.migrate(own_database, roles=True)
    owner = pgjq.PostgresStorage(own_database)
    fill(owner)
    owner.close()
    with psycopg.connect(own_database, autocommit=True) as connection:
        for role in ("monitor", "admin"):
            connection.execute(f"create role web_{role}_{connection.info.backend_pid} login in role pgjq_{role}")
        pid = connection.info.backend_pid
    try:
        seen = {role: _seen_by(own_database, f"web_{role}_{pid}") for role in ("monitor", "admin")}
    finally:
        with psycopg.connect(own_database, autocommit=True) as connection:
            for role in ("monitor", "admin"):
                connection.execute(f"drop role web_{role}_{pid}")
    assert seen == {"monitor": (False, False, 403), "admin": (True, True, 200)}


def _seen_by(database: str, role: str) -> tuple[bool, bool, int]:
    """Return whether a login is offered a retry and sees the payload, and what it gets when it retries."""
    storage = pgjq.PostgresStorage(psycopg.conninfo.make_conninfo(database, user=role))
    try:
        with TestClient(create_app(storage, auth=TOKEN), headers=BEARER) as browser:
            for page in PAGES[:-1]:
                assert browser.get(page).status_code == 200, page
            text = browser.get("/job?queue=mail&id=broken").text
            assert "no such order" in text
            code = re.search(r'csrf_token" value="([^"]+)', text)
            answer = browser.post("/act-job", data=FORM | {"csrf_token": code[1] if code else ""})
            return "act-job" in text, "order&#34;" in text, answer.status_code
    finally:
        storage.close()
