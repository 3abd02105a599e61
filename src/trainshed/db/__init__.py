"""Tables, migrations and queries: embedded SQLite, or PostgreSQL by URL."""
