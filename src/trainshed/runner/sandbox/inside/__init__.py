"""What runs alone inside a sandbox, before and beside the job; see `init`."""
