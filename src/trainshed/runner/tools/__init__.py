"""Tools that the platform hosts for a job (TensorBoard), each in a sandbox of its own."""
