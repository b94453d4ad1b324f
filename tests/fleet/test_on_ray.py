"""A fleet on a cluster of two nodes that the test starts."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from replay.orders import harmless

from hkvtool.bench.explore import scattered
from hkvtool.cli.app import main
from hkvtool.fleet.asking import Outcome, check_instance
from hkvtool.fleet.instances import Instance, instances
from hkvtool.fleet.on_ray import ask_on_ray
from hkvtool.fleet.on_ray import cluster as connected
from hkvtool.fleet.searching import OnCluster, on_caches_of
from hkvtool.replay.explore import Exploration, explore

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one core each; the second one is `cluster.second`."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": 1, "object_store_memory": 100 << 20}
    started = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        started.second = started.add_node(**node)
        started.wait_for_nodes(timeout=120)
        yield started
    finally:
        ray.shutdown()
        started.shutdown()


def test_a_cluster_finds_what_one_machine_finds(
    fleet: Path, cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for how in (["--workers", "1"], ["--ray", cluster.address]):
        capsys.readouterr()
        code = main(["fleet", "check", str(fleet), "--format", "json", *how])
        said.append((code, json.loads(capsys.readouterr().out)))
    (_, here), (code, there) = said
    assert said[0] == said[1]
    assert code == 1
    assert len(there["trace"]["instances"]) == 64
    assert there["summary"]["error"] >= 16
    assert here["findings"] == there["findings"]


@dataclass(frozen=True)
class Held:
    """A check that says where it runs and waits to be let go."""

    folder: Path

    def __call__(self, instance: Instance) -> Outcome:
        node = ray.get_runtime_context().get_node_id()
        (self.folder / f"node-{node}").touch()
        while not (self.folder / "go").exists():
            time.sleep(0.05)
        return check_instance(instance)


def test_a_node_that_is_killed_in_the_middle_changes_nothing(
    fleet: Path, cluster: Any, tmp_path: Path
) -> None:
    # A worker finds no module of this test's.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    asked = instances(fleet)
    answers: list[Outcome] = []
    asking = threading.Thread(
        target=lambda: answers.extend(ask_on_ray(Held(tmp_path), asked, cluster.address))
    )
    asking.start()
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("node-*"))) < 2:
        assert time.monotonic() < deadline, "the tasks did not come to both nodes"
        assert asking.is_alive()
        time.sleep(0.05)
    cluster.remove_node(cluster.second, allow_graceful=False)
    (tmp_path / "go").touch()
    asking.join(300)
    assert not asking.is_alive()
    assert [told(answer) for answer in answers] == [told(check_instance(one)) for one in asked]


def told(outcome: Outcome) -> tuple[Instance, Any, Any]:
    report = outcome.report
    return outcome.instance, report and report.as_json(), outcome.said


def test_an_address_where_nothing_listens_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    assert main(["fleet", "check", str(tmp_path), "--ray", "127.0.0.1:1"]) == 2
    assert "no Ray cluster at 127.0.0.1:1" in capsys.readouterr().err


def told_of(seen: Exploration) -> Any:
    """All that a search says, and all that it leaves for the next."""
    return (
        seen.verdict, [(f.by, f.run, f.schedule, f.key) for f in seen.found], seen.sampled,
        seen.certificate, seen.known.as_json(),
    )  # fmt: skip


def test_a_search_on_a_cluster_is_the_search_alone_also_where_a_node_is_killed(
    cluster: Any,
) -> None:
    for found, budget in ((scattered(4, 6, 2, 3), 300), (harmless(3, 2), 1500)):
        with connected(cluster.address) as there:
            seen = explore(found, budget=budget, elsewhere=OnCluster(there, found))
        assert told_of(seen) == told_of(explore(found, budget=budget))
    asked = 0

    def kill() -> bool:
        """Some portions in, when many more are handed out."""
        nonlocal asked
        asked += 1
        if asked == 300:
            cluster.remove_node(cluster.second, allow_graceful=False)
        return False

    found = harmless(3, 2)
    with connected(cluster.address) as there:
        seen = explore(found, budget=1500, stopped=kill, elsewhere=OnCluster(there, found))
    assert asked > 300
    assert told_of(seen) == told_of(explore(found, budget=1500))


def test_the_command_finds_on_a_cluster_what_it_finds_alone(
    cluster: Any, cases: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What fails there is run on real caches there too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = []
    for how in ([], ["--ray", cluster.address]):
        capsys.readouterr()
        code = main(["explore", str(cases["B16"].bad), "--format", "json", "--fresh", *how])
        said.append((code, json.loads(capsys.readouterr().out)))
    assert said[0] == said[1]
    assert said[0][0] == 1
    assert said[1][1]["found"][0]["caches"]["verdict"] == "confirmed"


def test_caches_get_a_gpu_where_the_cluster_has_any(monkeypatch: pytest.MonkeyPatch) -> None:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Ray takes our word for the GPU; nothing is run on it.
    ray.init(num_cpus=1, num_gpus=1, include_dashboard=False, object_store_memory=100 << 20)
    try:
        with connected("auto") as there:
            assert there.gpus == 1
            asked: Any = gpus_of
            assert list(there.ask(asked, ["one", "other"], gpus=1)) == [("one", 1), ("other", 1)]
            assert list(there.ask(asked, ["none"])) == [("none", 0)]
            assert on_caches_of(there, asked, ["9d95db85:"]) == [("9d95db85:", 1)]
        # It was there before, and is left as it is.
        assert ray.is_initialized()
    finally:
        ray.shutdown()


def gpus_of(name: str) -> tuple[str, int]:
    return name, len(ray.get_gpu_ids())
