"""The reference engine: a hybrid allocator, and the workloads that drive it."""
