"""The processes that make up a running platform."""
