"""A node of a job on a machine that the platform itself does not reach: the runner, and the courier beside it."""
