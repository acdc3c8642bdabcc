"""serving/deploy/gateway: its flags, probes and names fit the gateway."""

import json
import re

import yaml

from serving.gateway.__main__ import GatewaySettings
from serving.gateway.pages import PAGES
from tests.refusals import parsed
from tests.serving.model_server.test_deploy import DEPLOY, read, text


def test_the_gateway_is_asked_for_readiness_and_liveness_apart():
    deployment, service = yaml.safe_load_all(text("gateway/gateway.yaml"))
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    defaults = json.loads(re.search(r"^CMD (\[.*\])$", text("gateway/Dockerfile"), re.MULTILINE)[1])
    for arguments in (container["args"], defaults):
        settings = parsed(GatewaySettings, arguments)
        assert settings.target == f"{read('kubernetes/service.yaml', 'metadata.name')}:8500"
        assert settings.bind_address == "0.0.0.0" and settings.model
    settings = parsed(GatewaySettings, container["args"])
    assert [port["containerPort"] for port in container["ports"]] == [settings.port]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert probes == dict.fromkeys(("startup", "readiness"), "/health/ready") | {"liveness": "/health/live"}
    assert set(probes.values()) <= {page.path for page in PAGES if page.is_open}
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pause + settings.drain_s
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels


def test_in_compose_the_gateway_waits_for_the_models():
    gateway, server = (read("compose.yaml", f"services.{name}") for name in ("gateway", "serving"))
    name = server["environment"]["MODEL_NAME"]
    settings = parsed(GatewaySettings, [argument.replace(name, "albert") for argument in gateway["command"]])
    assert settings.target == "serving:8500" and tuple(settings.model) == ("albert",)
    assert settings.bind_address == "0.0.0.0" and gateway["ports"] == [f"127.0.0.1:{settings.port}:{settings.port}"]
    assert gateway["depends_on"] == {"serving": {"condition": "service_healthy"}}
    assert server["healthcheck"]["test"][-1].endswith("/dev/tcp/127.0.0.1/8500")
    assert f":{settings.port}/health/ready" in gateway["healthcheck"]["test"][-1]
    assert (DEPLOY.parents[1] / "dist" / gateway["build"]["dockerfile"]).resolve().is_file()


def test_behind_the_gateway_alone_the_server_does_not_batch():
    arguments = read("kubernetes/deployment.yaml", "spec.template.spec.containers.0.args")
    (patch,) = read("gateway/kustomization.yaml", "patches")
    test, *removed = yaml.safe_load(patch["patch"])
    place = int(test["path"].rpartition("/")[2])
    assert arguments[place] == test["value"] and [one["path"] for one in removed] == [test["path"]] * 2
    assert arguments[place + 1].startswith("--batching_parameters_file=")
    assert not any("batching" in argument for argument in arguments[:place] + arguments[place + 2 :])
