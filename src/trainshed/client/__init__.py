"""The Python client of the native API."""
