"""A shop on Django whose tasks are jobs of pgjq."""
