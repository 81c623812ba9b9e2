"""The PostgreSQL adapter: the only place that speaks psycopg."""
