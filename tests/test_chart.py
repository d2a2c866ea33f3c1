"""The Helm chart: rendered with Helm's own library, and checked against Kubernetes' schemas.

Skipped where `pip install --group chart` has not been run.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rmqpy.config import broker, namesrv, properties

helm = pytest.importorskip("helm_python")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

CHART = Path(__file__).resolve().parent.parent / "deploy" / "chart"
EVERYTHING: dict[str, Any] = {
    "nameServers": {"replicas": 3, "settings": {"scanNotActiveBrokerInterval": "5000"}},
    "brokers": {"sets": 2, "slaves": 1, "role": "SYNC_MASTER", "settings": {"flushDiskType": "SYNC_FLUSH"}},
    "outer": {"enabled": True, "service": {"annotations": {"zone": "a"}}},
    "tls": {"secret": "mq-tls", "serverName": "mq.example.com"},
    "users": {"secret": "mq-users"},
    "serviceMonitor": {"enabled": True, "token": {"name": "mq-users", "key": "httpToken"}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "mq", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}
#: Without the operator's definitions it has no schema.
CUSTOM = {"ServiceMonitor"}


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values, name="mq", namespace="messages")
    return [each for name in sorted(files) for each in yaml.safe_load_all(files[name]) if each]


def test_lint_finds_no_error() -> None:
    assert helm.chart.lint(CHART)["errors"] == []


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_what_the_chart_renders_fits_the_schemas(values: dict[str, Any]) -> None:
    objects = rendered(values)
    for each in objects:
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, "1.37", strict=True)
    sets = [each["metadata"]["name"] for each in objects if each["kind"] == "StatefulSet"]
    assert sets == (["mq-broker-0", "mq-broker-1", "mq-namesrv"] if values else ["mq-broker-0", "mq-namesrv"])


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_servers_accept_the_settings_that_the_chart_writes(values: dict[str, Any]) -> None:
    [settings] = [each["data"] for each in rendered(values) if each["kind"] == "ConfigMap"]
    assert broker.read(properties.parse(settings["broker.conf"])).warnings == []
    assert namesrv.read(properties.parse(settings["namesrv.conf"])).warnings == []


def test_settings_keep_their_values() -> None:
    given = {"mappedFileSizeCommitLog": 1073741824, "fileReservedTime": 48, "enablePropertyFilter": True}
    given |= {"diskSpaceWarningLevelRatio": 0.5, "brokerName": "1e3"}
    [settings] = [
        each["data"] for each in rendered({"brokers": {"settings": given}}) if each["kind"] == "ConfigMap"
    ]
    parsed = properties.parse(settings["broker.conf"])
    assert {key: parsed[key] for key in given} == {
        "mappedFileSizeCommitLog": "1073741824",
        "fileReservedTime": "48",
        "enablePropertyFilter": "true",
        "diskSpaceWarningLevelRatio": "0.5",
        "brokerName": "1e3",
    }


def test_every_container_is_confined() -> None:
    for each in rendered({}):
        if each["kind"] == "StatefulSet":
            pod = each["spec"]["template"]["spec"]
            [container] = pod["containers"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_chart_has_the_version_of_the_image() -> None:
    manifest = (CHART.parent.parent / "rust" / "Cargo.toml").read_text("utf-8")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert f'version = "{chart["version"]}"' in manifest
    assert chart["version"] == chart["appVersion"]
