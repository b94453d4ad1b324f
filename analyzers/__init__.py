"""One module a rule family."""
