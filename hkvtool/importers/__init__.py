"""Other people's formats, turned into hkv/1 events."""
