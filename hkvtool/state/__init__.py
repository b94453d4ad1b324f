"""The fold of events into block states, and happens-before. One of each, used everywhere."""
