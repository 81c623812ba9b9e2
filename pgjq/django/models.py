"""Unmanaged models over pgjq's views, for the admin and for queries.

They are read-only: change jobs by a client.
"""

# pyright: basic

from __future__ import annotations

from typing import ClassVar

from django.db import models

from pgjq.django.settings import first_place


def view(name: str) -> str:
    """Return the name of a view for `db_table`: Django takes a name in quotes as it is."""
    return f'"{first_place().schema}"."{name}"'


class Job(models.Model):
    """A job, live or ended."""

    seq = models.BigIntegerField(primary_key=True)
    queue_id = models.IntegerField()
    queue = models.TextField()
    id = models.TextField()
    task = models.TextField(null=True)
    state = models.TextField()
    priority = models.IntegerField()
    attempts = models.SmallIntegerField()
    max_attempts = models.SmallIntegerField()
    stalled = models.SmallIntegerField()
    singleton_key = models.TextField(null=True)
    worker = models.TextField(null=True)
    created_at = models.DateTimeField()
    run_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    locked_until = models.DateTimeField(null=True)

    class Meta:
        """One row of the view `jobs`."""

        managed = False
        db_table = view("jobs")
        ordering: ClassVar = ["-seq"]

    def __str__(self) -> str:
        """Return queue and id."""
        return f"{self.queue}/{self.id}"


class Queue(models.Model):
    """A queue and its backlog."""

    queue = models.TextField(primary_key=True)
    paused = models.BooleanField()
    ready = models.BigIntegerField()
    processing = models.BigIntegerField()
    oldest_age = models.DurationField(null=True)
    counted_deferred = models.BigIntegerField(null=True)
    counted_failing = models.BigIntegerField(null=True)
    counted_at = models.DateTimeField(null=True)

    class Meta:
        """One row of the view `backlog`."""

        managed = False
        db_table = view("backlog")
        ordering: ClassVar = ["queue"]

    def __str__(self) -> str:
        """Return the name."""
        return str(self.queue)


class Schedule(models.Model):
    """A schedule and its last tick."""

    name = models.TextField(primary_key=True)
    queue = models.TextField()
    cron = models.TextField(null=True)
    every = models.FloatField(null=True)
    timezone = models.TextField()
    paused = models.BooleanField()
    next_run_at = models.DateTimeField(null=True)
    last_run_at = models.DateTimeField(null=True)
    last_job_id = models.TextField(null=True)
    last_outcome = models.TextField(null=True)
    error = models.TextField(null=True)

    class Meta:
        """One row of the view `schedules`."""

        managed = False
        db_table = view("schedules")
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        """Return the name."""
        return str(self.name)
