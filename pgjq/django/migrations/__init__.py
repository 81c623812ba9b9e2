"""Django's migrations: one for each revision of pgjq's schema."""
