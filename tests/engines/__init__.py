"""Tests that run in an environment with real engines (`make engines`), not in that of the others."""
