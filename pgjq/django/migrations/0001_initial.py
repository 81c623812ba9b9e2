"""The first schema, and the models of the admin over its views."""

# pyright: basic

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models

from pgjq.django.models import view
from pgjq.django.schema import MigrateSchema


def unmanaged(name: str, key: str, kind: type[models.Field], over: str, ordering: str) -> migrations.CreateModel:
    """Declare a model over a view; Django compares only the options of such a model."""
    options = {"managed": False, "db_table": view(over), "ordering": [ordering]}
    return migrations.CreateModel(name, [(key, kind(primary_key=True, serialize=False))], options)


class Migration(migrations.Migration):
    """pgjq's revision pgjq_0001."""

    initial = True
    dependencies: ClassVar = []
    operations: ClassVar = [
        MigrateSchema("pgjq_0001", "base"),
        unmanaged("Job", "seq", models.BigIntegerField, "jobs", "-seq"),
        unmanaged("Queue", "queue", models.TextField, "backlog", "queue"),
        unmanaged("Schedule", "name", models.TextField, "schedules", "name"),
    ]
