"""The embedded object store: an SQLite index of keys over immutable blob files."""
