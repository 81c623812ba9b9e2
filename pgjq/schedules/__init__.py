"""Schedules: calendars, definitions, and the decision which jobs a tick makes. No I/O, no clock, no threads."""
