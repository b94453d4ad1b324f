"""Device work on real caches, each kernel with its torch reference."""
