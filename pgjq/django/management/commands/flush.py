"""`manage.py flush`: Django's command, which also deletes the jobs.

TransactionTestCase calls it after each test.
"""

# pyright: basic

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush
from django.db import connections, transaction

from pgjq.django.schema import revision_of
from pgjq.django.settings import all_settings, schemas_of
from pgjq.django.storages import forget
from pgjq.storage.postgres.queries import read


class Command(flush.Command):
    """Deletes the rows of all tables, and every job, queue and schedule."""

    def handle(self, **options: Any) -> None:
        """Flush as Django does, then delete pgjq's rows."""
        super().handle(**options)
        for own in all_settings():
            forget(own)
        connection = connections[options["database"]]
        if connection.vendor != "postgresql":
            return
        atomic: Any = transaction.atomic(using=connection.alias)
        with atomic, connection.cursor() as cursor:
            for schema in schemas_of(connection.alias):
                if revision_of(connection, schema) is not None:
                    cursor.execute(read("schema/delete_all.sql", schema))
