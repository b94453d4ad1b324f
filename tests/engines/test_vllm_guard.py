"""What vLLM lets pass without a word, the guard stops at the very call."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from vllm.v1.core.block_pool import BlockPool

from hkvtool.bench.vllm_loop import Drive, gemma_like, make_request, make_scheduler
from hkvtool.recorder.guard import Guard, GuardError, Mode
from hkvtool.recorder.guard_following import Following
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.violation import Violation
from hkvtool.recorder.vllm.attach import attach


@pytest.fixture
def pool() -> Iterator[BlockPool]:
    hooks = attach(Guard(Mode.RAISE).see)
    yield BlockPool(16, enable_caching=True, hash_block_size=16)
    hooks.remove()
    assert not hooks.failed


def test_a_double_free_is_stopped_where_it_happens(pool: BlockPool) -> None:
    blocks = pool.get_new_blocks(2)
    pool.free_blocks(blocks)
    with pytest.raises(GuardError, match="HKV704 refcount: block 1 is released more often") as told:
        pool.free_blocks(blocks[:1])
    events = told.value.violation.events
    assert events[0].ev == "alloc" and [e.ev for e in events[-2:]] == ["free", "free"]


def test_a_shared_block_that_is_freed_too_often_is_stopped_before_it_is_handed_out_again(
    pool: BlockPool,
) -> None:
    (block,) = pool.get_new_blocks(1)
    pool.touch([block])
    pool.free_blocks([block])
    pool.free_blocks([block])
    with pytest.raises(GuardError, match="HKV704"):
        pool.free_blocks([block])


def test_one_block_listed_twice_is_stopped(pool: BlockPool) -> None:
    (block,) = pool.get_new_blocks(1)
    with pytest.raises(GuardError, match="HKV704"):
        pool.free_blocks([block, block])


def test_what_is_right_passes(pool: BlockPool) -> None:
    for _ in range(5):
        blocks = pool.get_new_blocks(4)
        pool.touch(blocks[:2])
        pool.free_blocks(blocks)
        pool.free_blocks(blocks[:2])


def test_from_outside_a_scheduler_is_not_accused_and_its_pool_s_double_free_is_found(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    with begun(tmp_path / "r.hkv") as recording:
        hooks = attach(recording.emit_dict, recording.emitter, name_of=recording.keyed)
        scheduler = make_scheduler(tmp_path, gemma_like(), blocks=60, budget=64, seqs=4).scheduler
        for i in range(12):
            prompt = [3 + (n * (1 + i % 3)) % 240 for n in range(90)]
            scheduler.add_request(make_request(scheduler, f"r{i}", prompt, 40))
        drive = Drive(scheduler)
        drive.drain()
        following = Following(recording.folder, said.append)
        found: list[Violation] = []
        following.guard.on_violation.append(found.append)
        following.advance()
        clean = list(found)
        pool = scheduler.kv_cache_manager.block_pool
        blocks = pool.get_new_blocks(2)
        pool.free_blocks(blocks)
        pool.free_blocks(blocks[:1])
        hooks.remove()
        assert not hooks.failed
    following.advance()
    following.close()
    assert drive.steps > 100 and following.guard.seen > 1000
    assert not clean and not said
    assert [v.code for v in found] == ["HKV704"]
    assert found[0].blocks == (blocks[0].block_id,)


def begun(folder: Path) -> Recording:
    made = Recording.start(folder)
    assert isinstance(made, Recording)
    return made


VLLM_TEST = """
from vllm.v1.core.block_pool import BlockPool

def test_double_free_goes_by_unseen():
    pool = BlockPool(16, enable_caching=True, hash_block_size=16)
    blocks = pool.get_new_blocks(2)
    pool.free_blocks(blocks)
    try:
        pool.free_blocks(blocks[:1])
    except Exception:
        pass
"""


def test_its_own_tests_fail_at_it(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(VLLM_TEST)
    known = any(point.name == "hkv" for point in entry_points(group="pytest11"))
    plugin = [] if known else ["-p", "hkvtool.recorder.pytest_plugin"]
    path = os.pathsep.join(filter(None, sys.path))
    for flag, code in (([], 0), (["--hkv"], 1)):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-q", *flag],
            cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
    assert "HKV704 refcount: block 1 is released more often than it was taken" in done.stdout
