"""What the page takes for granted: two moments of the past."""

from datetime import UTC, datetime, timedelta

noon = datetime.now(UTC) - timedelta(hours=1)
last_week = noon - timedelta(days=7)
