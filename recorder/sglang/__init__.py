"""Recording SGLang from inside: its prefix tree, in Python or Rust, and its slot allocators."""
