"""The Slurm engine: hands attempts to a cluster's own scheduler."""
