"""`manage.py pgjq_migrate`: create or upgrade the schema or its roles, without Django's own."""

# pyright: basic

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from pgjq.django.settings import schemas_of
from pgjq.django.storages import conninfo_of
from pgjq.errors import PgjqError
from pgjq.migrate import migrate, status


class Command(BaseCommand):
    """Migrates the schemas that TASKS names in a database."""

    help = (
        "Create or upgrade the schema of pgjq. `migrate` does the same; this command can also create the roles, and"
        " show the revision."
    )

    def add_arguments(self, parser: Any) -> None:
        """Add the options."""
        parser.add_argument(
            "--database", default=DEFAULT_DB_ALIAS, choices=tuple(connections), help="Database of DATABASES."
        )
        parser.add_argument("--status", action="store_true", help="Show the revision and change nothing.")
        parser.add_argument("--roles", action="store_true", help="Create the database roles, too.")

    def handle(self, **options: Any) -> None:
        """Migrate or show."""
        database = options["database"]
        schemas = schemas_of(database)
        if not schemas or connections[database].vendor != "postgresql":
            raise CommandError(f"no backend in TASKS keeps its jobs in the database {database!r}")
        try:
            for schema in schemas:
                self._migrate(conninfo_of(database), schema, options)
        except PgjqError as error:
            raise CommandError(str(error)) from error

    def _migrate(self, conninfo: str, schema: str, options: Any) -> None:
        if not options["status"]:
            migrate(conninfo, schema, roles=options["roles"])
        current, head = status(conninfo, schema)
        self.stdout.write(f"schema {schema}: revision {current or 'none'}, newest {head}")
