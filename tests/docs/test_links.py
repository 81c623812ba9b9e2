"""Links between documents lead somewhere, and to the claim statement in three steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import PAGES, ROOT, name

if TYPE_CHECKING:
    from pathlib import Path

LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_claim_statement_is_three_steps_away_at_most() -> None:
    assert "docs/architecture.md" in LINK.findall((ROOT / "README.md").read_text())
    assert "../sql/queries/claim.sql" in LINK.findall((ROOT / "docs" / "architecture.md").read_text())
