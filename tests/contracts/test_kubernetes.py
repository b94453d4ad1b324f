"""The worked Kubernetes manifest: valid, and as restricted as the page about recording says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from hkvtool.cli.app import main
from hkvtool.recorder.environment import RECORD
from hkvtool.recorder.settings import MAX_BYTES, Settings

MANIFEST = Path(__file__).resolve().parents[2] / "docs" / "kubernetes" / "recorder.yaml"


@pytest.fixture(scope="module")
def deployment() -> dict[str, Any]:
    (found,) = yaml.safe_load_all(MANIFEST.read_text())
    return dict(found)


def containers(deployment: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = deployment["spec"]["template"]["spec"]
    return {c["name"]: c for c in [*spec["containers"], *spec["initContainers"]]}


@pytest.mark.parametrize("version", ["1.29", "1.33", kubernetes_validate.latest_version()])
def test_schema_accepts_it(deployment: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(deployment, version, strict=True)


def test_schema_refuses_a_word_misspelt(deployment: dict[str, Any]) -> None:
    broken = yaml.safe_load(MANIFEST.read_text().replace("readOnlyRootFilesystem", "readOnlyRoot"))
    with pytest.raises(kubernetes_validate.ValidationError, match="readOnlyRoot"):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


def test_nothing_is_privileged(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]["spec"]["securityContext"]
    assert pod["runAsNonRoot"] and pod["runAsUser"] and pod["seccompProfile"]
    for name, container in containers(deployment).items():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], name
        assert context["capabilities"] == {"drop": ["ALL"]}, name


def test_engine_and_sidecar_share_what_they_must(deployment: dict[str, Any]) -> None:
    engine, sidecar = containers(deployment)["vllm"], containers(deployment)["hkvtool"]
    env = {e["name"]: e["value"] for e in engine["env"]}
    mounts = [{m["name"]: m["mountPath"] for m in c["volumeMounts"]} for c in (engine, sidecar)]
    volumes = {v["name"]: v for v in deployment["spec"]["template"]["spec"]["volumes"]}
    assert {m for mount in mounts for m in mount} <= set(volumes)
    for path in (env[RECORD], env["HKV_RINGS"]):
        (name,) = [n for n, place in mounts[0].items() if path.startswith(place)]
        assert mounts[1][name] == mounts[0][name], f"{path} is the same folder in both"
    assert env[RECORD] in sidecar["args"]
    settings = Settings.of_environment(env)
    assert settings.rings == "/rings" and settings.max_bytes == MAX_BYTES
    held = volumes["rings"]["emptyDir"]
    assert held["medium"] == "Memory" and held["sizeLimit"] == "256Mi"
    assert 2 * settings.max_bytes <= 256 << 20


def test_sidecar_runs_a_command_that_there_is(
    deployment: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sidecar = containers(deployment)["hkvtool"]
    assert sidecar["restartPolicy"] == "Always"
    assert main([sidecar["args"][0], "--help"]) == 0
    said = capsys.readouterr().out
    for option in [arg for arg in sidecar["args"] if arg.startswith("--")]:
        assert option in said
