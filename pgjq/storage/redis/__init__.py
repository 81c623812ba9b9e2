"""Redis and Valkey: everything that speaks to them. Importing this folder's storage does not import redis-py."""
