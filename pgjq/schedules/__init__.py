"""Schedules: calendars, definitions, and which jobs a tick makes.

No I/O, no clock, no threads.
"""
