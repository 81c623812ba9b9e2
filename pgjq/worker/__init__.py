"""The worker: claim jobs, run their handlers, settle outcomes, and renew leases meanwhile."""
