"""The code in the README, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from psycopg.conninfo import conninfo_to_dict

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def test_the_readmes_code_prints_what_its_comments_say(empty_database: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, rest = (ROOT / "README.md").read_text().partition("```python\n")
    code, _, _ = rest.partition("```")
    url = "postgresql:///?" + urlencode(conninfo_to_dict(empty_database))
    said = re.findall(r"print\(.*\)  # (\w+)", code)
    names: dict[str, Any] = {}
    exec(re.sub(r'URL = ".*"', f"URL = {url!r}", code), names)  # noqa: S102
    assert capsys.readouterr().out.split() == said == ["None", "queued", "duplicate"]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_links_between_documents_lead_somewhere(page: str) -> None:
    links = LINK.findall((ROOT / page).read_text())
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_the_claim_statement_is_three_steps_away_at_most() -> None:
    assert "docs/architecture.md" in LINK.findall((ROOT / "README.md").read_text())
    assert "../sql/queries/claim.sql" in LINK.findall((ROOT / "docs" / "architecture.md").read_text())
