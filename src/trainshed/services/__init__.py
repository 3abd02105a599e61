"""What a caller may do, as plain functions: permission is checked here, once, for every surface."""
