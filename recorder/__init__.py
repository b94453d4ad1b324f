"""What runs inside the engine (hooks, rings, guard) and what listens outside."""
