"""What a caller may do, as plain functions that take the caller's identity."""
