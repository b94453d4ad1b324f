"""Caches, lanes, arms and schedules: the recorded events run again."""
