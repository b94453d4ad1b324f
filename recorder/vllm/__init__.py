"""Recording a vLLM engine from inside: hooks on its allocator and scheduler, nothing changed."""
