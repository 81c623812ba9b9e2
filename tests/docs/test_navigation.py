"""The site's navigation: groups by purpose, and titles that are those of the pages."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

GROUPS = ["Home", "Start", "How-to", "Reference", "Explanation", "Operating", "Contributing"]
# The README's title is the project's name.
OTHER_TITLES = {"Overview"}
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
ENTRIES = re.findall(r"^      - (.+): (\S+\.md)$", NAVIGATION, re.MULTILINE)
ELSEWHERE = dict(re.findall(r'"(\S+\.md)": "(\S+\.md)"', (ROOT / "docs" / "hooks.py").read_text()))


def title(uri: str) -> str | None:
    """Return a page's first line; None for a page that the build makes."""
    path = ROOT / ELSEWHERE.get(uri, f"docs/{uri}")
    return path.read_text().partition("\n")[0].removeprefix("# ") if path.exists() else None


def test_pages_are_in_groups() -> None:
    assert re.findall(r"^  - ([\w-]+):", NAVIGATION, re.MULTILINE) == GROUPS


@pytest.mark.parametrize(("shown", "uri"), ENTRIES, ids=[uri for _, uri in ENTRIES])
def test_a_page_has_the_title_that_leads_to_it(shown: str, uri: str) -> None:
    assert shown in OTHER_TITLES or title(uri) in (shown, None)
