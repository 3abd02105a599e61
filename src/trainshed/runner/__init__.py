"""The program beside the user's code on every node of every job."""
