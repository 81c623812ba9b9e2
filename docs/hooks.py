"""What the site has beside the pages in docs/: mkdocs calls the two functions whose names begin with `on_`.

README, changelog, upgrading, contributing and examples are pages; so are the commands' help, a
list of the decisions, and every file of the repository that some page links to. Links are rewritten to where these are
on the site, so that the same text leads somewhere in a checkout and here.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mkdocs.structure.files import File, InclusionLevel

from pgjq.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)((?:#[^)]*)?\))")
FROM_ELSEWHERE = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "examples.md": "examples/README.md",
    "overview.md": "README.md",
    "upgrading.md": "UPGRADING.md",
}
WIDTH = 86  # Of the commands' help: as much as a page has beside its table of contents.
# The Makefile puts it there. Without it, browsers fetch one from a CDN, and diagrams need a network.
MERMAID = next((ROOT / ".venv").glob("mermaid-*/mermaid.min.js"), None)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are made from elsewhere."""
    for uri, path in FROM_ELSEWHERE.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    files.append(File.generated(config, "commands.md", content=_commands()))
    files.append(File.generated(config, "adr/index.md", content=_decisions()))
    for path in sorted(_linked_sources(files)):
        source = File.generated(config, _uri(path), content=_shown(path), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(source)
    if MERMAID is not None:
        files.append(File.generated(config, "assets/mermaid.min.js", content=MERMAID.read_text()))
        config.extra_javascript.append("assets/mermaid.min.js")


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Let links lead to where their targets are on the site."""
    uri = page.file.src_uri

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.relpath(_uri(_target(uri, link[2])), posixpath.dirname(uri))
        return link[1] + target + link[3]

    return markdown if uri.startswith("source/") else LINK.sub(rewritten, markdown)


def _target(uri: str, link: str) -> Path:
    """Find what a page links to, in the checkout."""
    page = ROOT / FROM_ELSEWHERE[uri] if uri in FROM_ELSEWHERE else DOCS / uri
    return (page.parent / link).resolve()


def _uri(path: Path) -> str:
    """Tell where a file of the checkout is on the site."""
    known = {(ROOT / source).resolve(): uri for uri, source in FROM_ELSEWHERE.items()}
    if path in known:
        return known[path]
    if path == DOCS / "adr":
        return "adr/index.md"
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def _linked_sources(files: Files) -> set[Path]:
    linked = {
        _target(file.src_uri, link[2])
        for file in files.documentation_pages()
        for link in LINK.finditer(file.content_string)
    }
    return {path for path in linked if path.exists() and _uri(path).startswith("source/")}


def _shown(path: Path) -> str:
    """Make a page of a file, or of all files in a folder."""
    name = path.relative_to(ROOT).as_posix()
    parts = [path] if path.is_file() else sorted(part for part in path.iterdir() if part.is_file())
    shown = (f"`{part.name}`\n\n~~~~~{part.suffix[1:]}\n{part.read_text()}\n~~~~~\n" for part in parts)
    return f"# {name}\n\n" + "\n".join(shown)


def _decisions() -> str:
    titles = ((path, path.read_text().partition("\n")[0].lstrip("# ")) for path in sorted((DOCS / "adr").glob("*.md")))
    listed = "".join(f"- [{title}]({path.name})\n" for path, title in titles)
    return f"# Decisions\n\nWhy it is built as it is, with the numbers.\n\n{listed}"


def _commands() -> str:
    sections = (f"## {name}\n\n```text\n{text}\n```\n" for name, text in _helps(main, None, "pgjq"))
    return "# Commands and options\n\nWhat `--help` says, command by command.\n\n" + "\n".join(sections)


def _helps(command: click.Command, parent: click.Context | None, name: str) -> Iterator[tuple[str, str]]:
    width = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=name, parent=parent, **width, **command.context_settings)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            yield from _helps(command.commands[child], context, child)
