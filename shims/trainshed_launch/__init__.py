"""Launchers that stand in for those of other makers inside a job."""
