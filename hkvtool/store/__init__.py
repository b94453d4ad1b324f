"""The trace file: schema, ingest of segments, import, export and seek."""
