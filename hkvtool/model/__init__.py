"""The vocabulary: forms, events, layouts, rules and findings. Standard library only."""
