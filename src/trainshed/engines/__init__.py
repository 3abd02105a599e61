"""What runs attempts: one folder per engine behind one small interface."""
