"""SGLang as an adapter: what its plugin and recordings within a program attach with."""

from __future__ import annotations

from hkvtool.recorder.plugin_adapter import PluginAdapter

ADAPTER = PluginAdapter("sglang")
