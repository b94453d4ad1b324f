"""Traces that must keep their verdict: variants of the cases, and runs of a correct engine."""
