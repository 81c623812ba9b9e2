"""The worker conformance suite: what users of queues, workers and clients rely on."""
