"""Running jobs: claim, execute, settle, and hold the leases meanwhile."""
