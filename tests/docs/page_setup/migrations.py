"""What the page takes for granted: imports, and a project's alembic configuration."""

from pathlib import Path

from alembic.config import Config

here = Path.cwd()
config = Config()


def afterwards() -> None:
    folders = (config.get_main_option("version_locations") or "").splitlines()
    assert list(Path(folders[1]).glob("*.py"))
