"""serving/deploy/gateway: its flags, probes and names fit the gateway."""

import json
import re
from pathlib import Path

import yaml
from absl import flags

import serving.gateway
from serving.gateway.__main__ import Settings
from serving.gateway.pages import PAGES
from tfrecords.base.settings import define_flags, read_flags

DEPLOY = Path(serving.gateway.__file__).parents[1] / "deploy"


def _settings(arguments: list[str]) -> Settings:
    values = flags.FlagValues()
    define_flags(Settings, values)
    assert values(["gateway", *arguments]) == ["gateway"]
    return read_flags(Settings, values)


def test_the_gateway_is_asked_for_readiness_and_liveness_apart():
    deployment, service = yaml.safe_load_all((DEPLOY / "gateway" / "gateway.yaml").read_text())
    server = yaml.safe_load((DEPLOY / "kubernetes" / "service.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    image = (DEPLOY / "gateway" / "Dockerfile").read_text()
    defaults = json.loads(re.search(r"^CMD (\[.*\])$", image, re.MULTILINE)[1])
    for arguments in (container["args"], defaults):
        settings = _settings(arguments)
        assert settings.target == f"{server['metadata']['name']}:8500"
        assert settings.bind_address == "0.0.0.0" and settings.model
    settings = _settings(container["args"])
    assert [port["containerPort"] for port in container["ports"]] == [settings.port]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("readiness", "liveness")}
    assert probes == {"readiness": "/health/ready", "liveness": "/health/live"}
    assert set(probes.values()) <= {page.path for page in PAGES if page.is_open}
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pause + settings.drain_s
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels
