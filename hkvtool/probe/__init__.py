"""Black-box differential testing of a running server: does reuse change what it answers?"""
