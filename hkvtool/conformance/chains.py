"""Prompts as the reference engine knows requests: by chains of nodes, not by tokens."""

from __future__ import annotations

from hkvtool.conformance.allocator import Prompt
from hkvtool.engine.workload import OWN, Request


class Chains:
    """A trie of tokens: a node is a token and all before it, so equal nodes are equal prefixes."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], int] = {}
        self._requests: dict[str, Request] = {}

    def request(self, prompt: Prompt) -> Request:
        """The prompt as a request; what it generates is its own."""
        known = self._requests.get(prompt.id)
        if known is None:
            node, nodes = -1, []
            for token in prompt.tokens[: prompt.prompt]:
                node = self._nodes.setdefault((node, token), len(self._nodes))
                nodes.append(node)
            known = self._requests[prompt.id] = Request(
                prompt.id, 0, prompt.prompt, len(prompt.tokens) - prompt.prompt, tuple(nodes), 1,
                OWN + len(self._requests),
            )  # fmt: skip
        return known
