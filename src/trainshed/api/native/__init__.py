"""The platform's own REST API."""
