"""Many traces, checked in parallel."""
