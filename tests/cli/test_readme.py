"""The code in the README, run as it stands there."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def test_the_readmes_code_does_what_it_says(empty_database: str, capsys: pytest.CaptureFixture[str]) -> None:
    producing, consuming = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    url = "postgresql:///?" + urlencode(conninfo_to_dict(empty_database))
    said = re.findall(r"print\(.*\)  # (\w+)", producing)
    names: dict[str, Any] = {}
    exec(re.sub(r'URL = ".*"', f"URL = {url!r}", producing), names)  # noqa: S102
    assert capsys.readouterr().out.split() == said == ["None", "queued", "duplicate"]
    exec(consuming.partition("queue.run()")[0], names)  # noqa: S102
    done = threading.Event()
    names["queue"].on("completed", lambda _event: done.set())
    with names["queue"]:
        assert done.wait(60)
    names["queue"].storage.close()
    with psycopg.connect(url) as shop:
        assert shop.execute("select mailed from orders").fetchall() == [(True,)]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_links_between_documents_lead_somewhere(page: str) -> None:
    links = LINK.findall((ROOT / page).read_text())
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_the_claim_statement_is_three_steps_away_at_most() -> None:
    assert "docs/architecture.md" in LINK.findall((ROOT / "README.md").read_text())
    assert "../sql/queries/claim.sql" in LINK.findall((ROOT / "docs" / "architecture.md").read_text())
