"""Black-box differential testing of a running server."""
