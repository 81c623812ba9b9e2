"""The reference model: what every operation does to jobs, without I/O, clock or threads."""
