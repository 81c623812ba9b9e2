"""A user's own alembic project takes pgjq's revisions in, as docs/migrations.md says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from alembic import command
from alembic.config import Config

import pgjq
from pgjq.migrate import sqlalchemy_url, versions_path

if TYPE_CHECKING:
    from pathlib import Path

ENV = """
from alembic import context
from sqlalchemy import create_engine

engine = create_engine(context.config.attributes["url"])
with engine.connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
"""

REVISION = """
from alembic import op

revision = "shop_1"
down_revision = None
branch_labels = ("shop",)
depends_on = "pgjq_0001"

def upgrade():
    op.execute("create table orders (id integer)")

def downgrade():
    op.execute("drop table orders")
"""


@pytest.fixture(params=["pgjq", "jobs"])
def schema(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def project(tmp_path: Path, empty_database: str, schema: str) -> Config:
    """Make an alembic project with one revision of its own, beside pgjq's."""
    own = tmp_path / "versions"
    own.mkdir()
    (own / "shop_1.py").write_text(REVISION)
    (tmp_path / "env.py").write_text(ENV)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{own}\n{versions_path()}")
    config.set_main_option("pgjq_schema", schema)
    config.attributes["url"] = sqlalchemy_url(empty_database)
    return config


def versions(database: str) -> set[str]:
    with psycopg.connect(database) as connection:
        return {name for (name,) in connection.execute("select version_num from alembic_version")}


def test_one_upgrade_brings_both_and_jobs_can_be_enqueued(project: Config, empty_database: str, schema: str) -> None:
    command.upgrade(project, "heads")
    assert versions(empty_database) == {"shop_1"}  # Which depends on pgjq's, and so stands for both.
    with (
        pgjq.Client(pgjq.PostgresStorage(empty_database, schema=schema)) as client,
        psycopg.connect(empty_database) as connection,
    ):
        connection.execute("insert into orders values (7)")
        assert client.enqueue("mail", "receipt-7", {}, connection=connection).status == "queued"


def test_pgjq_comes_and_goes_alone_as_a_branch(project: Config, empty_database: str, schema: str) -> None:
    command.upgrade(project, "pgjq@head")
    assert versions(empty_database) == {"pgjq_0001"}
    command.downgrade(project, "pgjq@base")
    assert versions(empty_database) == set()
    with pgjq.Client(pgjq.PostgresStorage(empty_database, schema=schema)) as client, pytest.raises(pgjq.SchemaError):
        client.enqueue("mail", None, {})
