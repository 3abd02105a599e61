"""The pages that people see: sign in, the list of jobs, and one page per job with its live log and curves."""
