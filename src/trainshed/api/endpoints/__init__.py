"""Hosted tools, served from an origin of their own: a proxy to the sandboxes in which they run."""
