"""pgjq.django, tested by Django's own test runner in processes of their own: a project's settings hold for a process.

`PGJQ_TEST_DJANGO_PYTHON` names another interpreter, with pgjq and another Django, to run the same tests with:

    python3.13 -m venv /tmp/django6 && /tmp/django6/bin/pip install --editable '.[django,embedded]' 'django>=6'
    PGJQ_TEST_DJANGO_PYTHON=/tmp/django6/bin/python make test PYTEST_ARGS=tests/django_backend
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.docs.pages import blocks

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "django_shop"
PROJECT = Path(__file__).parent / "project"
PYTHON = os.environ.get("PGJQ_TEST_DJANGO_PYTHON", sys.executable)
NAMES = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}


@pytest.fixture
def environment(empty_database: str) -> dict[str, str]:
    """An environment that leads Django, and libpq, to an empty database."""
    given = conninfo_to_dict(empty_database)
    return os.environ | {NAMES[name]: str(value) for name, value in given.items() if name in NAMES}


def manage(project: Path, environment: dict[str, str], *command: str) -> str:
    """Run a command of a project, and return what it said."""
    ended = subprocess.run(
        [PYTHON, "manage.py", *command],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.mark.parametrize("cases", ["cases_backend.py", "cases_admin.py", "cases_commands.py"])
def test_the_backend(cases: str, environment: dict[str, str]) -> None:
    output = manage(PROJECT, environment, "test", "--noinput", "--pattern", cases, "--shuffle")
    assert re.search(r"Ran \d+ tests", output), output


def test_without_time_zones(environment: dict[str, str]) -> None:
    manage(PROJECT, environment | {"PROJECT_USE_TZ": "0"}, "test", "--noinput", "--pattern", "cases_naive_time.py")


@pytest.mark.parametrize("storage", ["memory", "postgres"])
def test_the_example_project(storage: str, environment: dict[str, str]) -> None:
    manage(SHOP, environment | {"SHOP_STORAGE": storage}, "test", "--noinput")


def test_the_commands_of_the_example_project(environment: dict[str, str], empty_database: str) -> None:
    manage(SHOP, environment, "migrate")
    manage(SHOP, environment, "check", "--fail-level", "WARNING", "--database", "default")
    manage(SHOP, environment, "makemigrations", "--check")
    enqueue = "from shop.tasks import count_attempts; print(count_attempts.enqueue().id)"
    result = manage(SHOP, environment, "shell", "-c", enqueue).splitlines()[-1]
    assert "nothing is due" in manage(SHOP, environment, "pgjq_worker", "--drain", "--no-reload")
    with psycopg.connect(empty_database) as connection:
        found = connection.execute("select id, state, attempts from pgjq.jobs").fetchall()
    assert found == [(result.partition(":")[2], "completed", 1)]


BASE = """
import os
SECRET_KEY = "only for this test"
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["testserver"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "HOST": os.environ["PGHOST"],
    "PORT": os.environ["PGPORT"], "USER": os.environ["PGUSER"],
}}
"""
MODELS = """
from django.db import models

class Order(models.Model):
    customer = models.CharField(max_length=100)

    class Meta:
        app_label = "shop"
"""
URLS = (
    "from django.urls import path\nfrom shop.views import place_order\nurlpatterns = [path('orders/', place_order)]\n"
)


def test_the_code_of_the_page_is_a_project(environment: dict[str, str], tmp_path: Path) -> None:
    found = {str(block.title): block.text for block in blocks(ROOT / "docs" / "django.md", "python")}
    assert sorted(found) == ["shop/settings.py", "shop/tasks.py", "shop/tests.py", "shop/views.py"]
    has_tasks = subprocess.run([PYTHON, "-c", "import django.tasks"], capture_output=True, check=False).returncode == 0
    only = '"django_tasks",  # only in Django 5.2'
    old, new = "from django.tasks import task  # Django 5.2: ", "from django_tasks import task"
    assert only in found["shop/settings.py"]
    assert f"{old}{new}\n" in found["shop/tasks.py"]
    if has_tasks:
        found["shop/settings.py"] = found["shop/settings.py"].replace(only, "")
    else:
        found["shop/tasks.py"] = found["shop/tasks.py"].replace(old, "")
    found["shop/settings.py"] = BASE + found["shop/settings.py"].replace("# …", '"shop",')
    files = {"shop/__init__.py": "", "shop/models.py": MODELS, "shop/urls.py": URLS, **found}
    (tmp_path / "shop").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "manage.py").write_text((SHOP / "manage.py").read_text())
    assert "Ran 1 test" in manage(tmp_path, environment, "test", "--noinput")
