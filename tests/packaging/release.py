"""The command behind `make release-check`: say whether this commit can be released, and freeze the SQL of a release.

    python -m tests.packaging.release            checks the checkout and the archives in dist/
    python -m tests.packaging.release --freeze   writes migrations/released.sha256; docs/releasing.md says when

A file that a release contains is never edited afterwards: the list has the hash of each.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from pgjq.storage.postgres.schema_version import SCHEMA_VERSION

ROOT = Path(__file__).parents[2]
FROZEN = "migrations/released.sha256"
FREEZE = "run python -m tests.packaging.release --freeze, and commit it"
PATTERNS = ("migrations/versions/*.py", "sql/schema/*.sql", "sql/functions/*.sql", "sql/views/*.sql")


def migration_files(root: Path) -> dict[str, str]:
    """Return the hash of each file that a revision consists of, by its path."""
    paths = sorted(path for pattern in PATTERNS for path in root.glob(pattern))
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def frozen_files(root: Path) -> dict[str, str]:
    """Return the hashes of the files that releases contain."""
    lines = (root / FROZEN).read_text().splitlines()
    return {path: found for found, path in (line.split(maxsplit=1) for line in lines)}


def edited_files(root: Path) -> list[str]:
    """Return the released files that are not as they were released."""
    now = migration_files(root)
    return [path for path, found in frozen_files(root).items() if now.get(path) != found]


def freeze(root: Path) -> None:
    """Add the files that no release contained before."""
    known = migration_files(root) | frozen_files(root)
    (root / FROZEN).write_text("".join(f"{found}  {path}\n" for path, found in sorted(known.items())))


def version_of(root: Path) -> str:
    """Return the version in pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]


def section(text: str, heading: str) -> str:
    """Return the text below a heading, up to the next one of its level; empty if there is none."""
    found = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def problems(root: Path) -> list[str]:
    """Return what keeps a checkout from being released."""
    version = version_of(root)
    wrong: list[str] = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        wrong.append(f"pyproject.toml: the version is {version}: set the one to release, such as 0.1.0")
    name = re.escape(version)
    if not section((root / "CHANGELOG.md").read_text(), rf"\[{name}\] - \d{{4}}-\d\d-\d\d"):
        wrong.append(f"CHANGELOG.md: no section ## [{version}] - YYYY-MM-DD with entries")
    if not section((root / "UPGRADING.md").read_text(), name):
        wrong.append(f"UPGRADING.md: no section ## {version}")
    wrong += [f"{path}: a release contains it, and it was edited: write a new revision" for path in edited_files(root)]
    if new := sorted(migration_files(root).keys() - frozen_files(root).keys()):
        wrong.append(f"{FROZEN}: {len(new)} files are not frozen, {new[0]} for example: {FREEZE}")
    newest = max(int(path.name[:4]) for path in (root / "migrations/versions").glob("0*.py"))
    if newest != SCHEMA_VERSION:
        wrong.append(f"schema_version.py: SCHEMA_VERSION is {SCHEMA_VERSION}, the newest revision is {newest}")
    return wrong


def archive_problems(dist: Path, version: str) -> list[str]:
    """Return what is wrong with the wheel and the source archive."""
    expected = [dist / f"pgjq-{version}-py3-none-any.whl", dist / f"pgjq-{version}.tar.gz"]
    missing = [path for path in expected if not path.exists()]
    if missing:
        return [f"dist/: no {path.name}: run make build" for path in missing]
    command = (sys.executable, "-m", "twine", "check", "--strict", *map(str, expected))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [f"twine check: {done.stdout}{done.stderr}"]


def main(arguments: list[str]) -> int:
    """Check, or freeze."""
    if arguments == ["--freeze"]:
        freeze(ROOT)
        return 0
    wrong = problems(ROOT) + archive_problems(ROOT / "dist", version_of(ROOT))
    for problem in wrong:
        print(problem)  # noqa: T201
    if not wrong:
        print(f"pgjq {version_of(ROOT)} can be released")  # noqa: T201
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
