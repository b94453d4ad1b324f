"""hkvtool: record, check and replay the KV cache of hybrid-attention inference engines."""

__version__ = "0.1.0"
