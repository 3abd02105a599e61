"""Plain data and pure decisions: no I/O, no clock, no randomness."""
