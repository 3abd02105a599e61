"""What a job sees, one module per contract."""
