"""Storage on Redis and Valkey. Importing `storage` does not import redis-py."""
