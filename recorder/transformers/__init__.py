"""Recording transformers' continuous batching from inside, in process, nothing changed.

There is no plugin interface: the hooks of `choke_points` are put on when a recording or a guard
begins in this process, and taken off when it ends.
"""
