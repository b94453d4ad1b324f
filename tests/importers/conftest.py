"""The samples, and the names that hashes get in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hkvtool.model.shipped import shipped
from hkvtool.recorder.vllm.privacy import Keyed, names_under


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of the samples in the installed package."""
    return Path(str(shipped("imports")))


@pytest.fixture
def names() -> Keyed:
    """Names under one key, so that two imports compare."""
    return Keyed(names_under(b"k" * 32))
