"""The Django app: `"pgjq.django"` in INSTALLED_APPS."""

# pyright: basic

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class PgjqConfig(AppConfig):
    """Brings migrations, commands, checks and the admin."""

    name = "pgjq.django"
    label = "pgjq"
    verbose_name = "pgjq"

    def ready(self) -> None:
        """Register the check of the databases; Django itself calls those of the backends."""
        from pgjq.django.checks import check_schemas

        checks.register(check_schemas, checks.Tags.database)
