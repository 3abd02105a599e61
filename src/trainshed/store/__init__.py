"""Object storage: the embedded store, and the one interface that all of the platform uses."""
