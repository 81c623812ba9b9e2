"""Tasks: named, typed functions on a queue."""
