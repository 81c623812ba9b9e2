"""Storage in a directory, for the processes of one machine."""
