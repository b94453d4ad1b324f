"""Public bugs of released engines, driven in the release that had them and in the one without."""
