"""PostgreSQL storage: the only package that uses psycopg."""
