"""The reference model: what every operation of the port does to jobs, without I/O, clock or threads."""
