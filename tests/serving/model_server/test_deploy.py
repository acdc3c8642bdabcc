"""serving/deploy: each file is read as its tool reads it, and checked against the contract's flags and metrics."""

import dataclasses
import functools
import json
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from serving.client import Client, Connection
from serving.model_server import flags, telemetry
from serving.model_server.batching import BatchingOptions
from serving.wire.protos import BatchingParameters, MonitoringConfig
from tests.serving.model_server.conftest import ESTABLISHED, sockets, wait_until

DEPLOY = Path(flags.__file__).parents[1] / "deploy"
GRPC, REST = 8500, 8501


def text(name):
    return (DEPLOY / name).read_text()


def read(name, path=""):
    """What stands at a path, as `spec.containers.0.name`, of a file with one YAML or JSON document."""
    (document,) = yaml.safe_load_all(text(name))
    steps = path.split(".") if path else ()
    return functools.reduce(lambda found, step: found[int(step) if step.isdigit() else step], steps, document)


MONITORING = text_format.Parse(text("monitoring.config"), MonitoringConfig()).prometheus_config
SERVICE = read("kubernetes/service.yaml")
RULE = read("prometheus/adapter_rules.yaml", "rules.custom.0")
SCRIPT = "/config/link_versions.sh"
OWN_FLAGS = {"bind_address", "access_log", "help", "rest_api_max_body_bytes", "drain_seconds"}
REAL_FLAGS = {
    field.name: field.type for field in dataclasses.fields(flags.ServerOptions) if field.name not in OWN_FLAGS
}


def check_flags(arguments):
    """Each must be a flag of the real server with a value it takes."""
    for argument in arguments:
        assert argument.removeprefix("--").partition("=")[0] in REAL_FLAGS, argument
    assert flags.parse(arguments)[1] == []
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


MODELS = text_format.Parse(text("models.config"), model_server_config_pb2.ModelServerConfig()).model_config_list.config


def test_configs_parse_and_fit():
    BatchingOptions(text_format.Parse(text("batching.config"), BatchingParameters())).check()
    assert MONITORING.enable
    for model in MODELS:
        assert model.model_platform == "tensorflow"
        # What a label names stays, whatever newer versions are written.
        assert set(model.version_labels.values()) <= set(model.model_version_policy.specific.versions)


class Recipe(NamedTuple):
    """How a recipe starts the server: command and flags, and the variables that the script in front of it reads."""

    command: list[str]
    arguments: list[str]
    environment: dict[str, str]

    @property
    def flags(self):
        return check_flags(self.arguments)


def in_dockerfile(word):
    return json.loads(re.search(rf"^{word} (\[.*?\])$", text("server/Dockerfile").replace("\\\n", ""), re.MULTILINE)[1])


def variables(container):
    return {variable["name"]: variable["value"] for variable in container["env"]}


DEPLOYMENT = read("kubernetes/deployment.yaml")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
COMPOSE, PREDICTOR = read("compose.yaml", "services.serving"), read("kserve.yaml", "spec.predictor")
RECIPES = {
    "Dockerfile": Recipe(in_dockerfile("ENTRYPOINT"), in_dockerfile("CMD"), {"MODEL_NAME": "albert"}),
    "compose": Recipe(COMPOSE["entrypoint"], COMPOSE["command"], {"MODEL_NAME": "albert"}),
    "kubernetes": Recipe(CONTAINER["command"], CONTAINER["args"], variables(CONTAINER)),
    "kserve": Recipe(PREDICTOR["model"]["command"], PREDICTOR["model"]["args"], variables(PREDICTOR["model"])),
}


SETTINGS = """
compose.yaml services.serving.read_only: true
compose.yaml services.serving.cap_drop: [ALL]
compose.yaml services.serving.security_opt: ["no-new-privileges:true"]
compose.yaml services.serving.ports: ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]
# Process 1 is not ended by a SIGTERM that it does not handle.
compose.yaml services.serving.init: true
kubernetes/deployment.yaml spec.template.spec.shareProcessNamespace: true
kubernetes/deployment.yaml spec.template.spec.automountServiceAccountToken: false
kubernetes/deployment.yaml spec.template.spec.containers.0.securityContext: &safe
  {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
kserve.yaml spec.predictor.model.securityContext: *safe
kubernetes/deployment.yaml spec.template.spec.securityContext.seccompProfile: &profile {type: RuntimeDefault}
kserve.yaml spec.predictor.securityContext.seccompProfile: *profile
kubernetes/deployment.yaml spec.selector.matchLabels: &labels {app: albert-serving}
kubernetes/deployment.yaml spec.template.metadata.labels: *labels
kubernetes/service.yaml spec.selector: *labels
kubernetes/disruption_budget.yaml spec.selector.matchLabels: *labels
kubernetes/network_policy.yaml spec.podSelector.matchLabels: *labels
kubernetes/network_policy.yaml spec.egress: []
kubernetes/network_policy.yaml spec.policyTypes: [Ingress, Egress]
# Pods are spread over nodes and over zones, as far as can be.
kubernetes/deployment.yaml spec.template.spec.topologySpreadConstraints:
  - &spread {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway,
             labelSelector: {matchLabels: *labels}}
  - {<<: *spread, topologyKey: topology.kubernetes.io/zone}
kserve.yaml apiVersion: serving.kserve.io/v1beta1
kserve.yaml kind: InferenceService
kubernetes/deployment.yaml spec.template.spec.securityContext.runAsNonRoot: true
kubernetes/deployment.yaml spec.template.spec.securityContext.runAsUser: 1000
kserve.yaml spec.predictor.securityContext.runAsNonRoot: true
kserve.yaml spec.predictor.securityContext.runAsUser: 1000
prometheus/service_monitor.yaml apiVersion: monitoring.coreos.com/v1
prometheus/service_monitor.yaml kind: ServiceMonitor
prometheus/alerts.yaml apiVersion: monitoring.coreos.com/v1
prometheus/alerts.yaml kind: PrometheusRule
kserve.yaml spec.predictor.model.modelFormat.name: tensorflow
"""


@pytest.mark.parametrize("place, value", yaml.safe_load(SETTINGS).items())
def test_a_setting_is_what_it_must_be(place, value):
    assert read(*place.split(" ")) == value


def files_of(values):
    """The configuration files that a recipe's flags name, and its script."""
    return {values["monitoring_config_file"], values["batching_parameters_file"], SCRIPT}


def test_dockerfile():
    dockerfile = text("server/Dockerfile")
    copied = re.search(r"^COPY --chown=1000:1000 (serving/deploy/.*) /config/$", dockerfile, re.MULTILINE)[1].split()
    assert all((DEPLOY.parents[1] / path).is_file() for path in copied)
    assert {f"/config/{Path(path).name}" for path in copied} == files_of(RECIPES["Dockerfile"].flags)
    assert re.search(rf"^EXPOSE {GRPC} {REST}$", dockerfile, re.MULTILINE)
    # What the base image sets hides an argument of the same name.
    assert not set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE)) & {"MODEL_NAME", "MODEL_BASE_PATH", "PORT"}
    # A number: Kubernetes cannot tell of a name that it is not root.
    assert re.findall(r"^USER (.*)$", dockerfile, re.MULTILINE) == ["1000:1000"]
    assert dockerfile.count("COPY --chown=1000:1000 ") == dockerfile.count("COPY "), "that user can read all of it"
    # .dockerignore lies where the build context begins: everything is left out, and then let in by name.
    ignored = (DEPLOY.parents[1] / ".dockerignore").read_text()
    rules = [line for line in ignored.split("\n") if line and line[0] != "#"]
    assert rules[0] == "**"
    sources = [word for copy in re.findall(r"^COPY \S+ (.*)$", dockerfile, re.MULTILINE) for word in copy.split()[:-1]]
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    assert {source.replace("${MODEL}", "**") for source in sources} == let_in


def test_compose():
    mounts = set()
    for service in read("compose.yaml", "services").values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), "published on this machine only"
        own = [mount.split(":")[:2] for mount in service.get("volumes", []) if mount.startswith("./")]
        assert all((DEPLOY / source).is_file() for source, _ in own)
        mounts |= {target for _, target in own}
    assert files_of(RECIPES["compose"].flags) <= mounts
    assert re.fullmatch(r"\$\{SERVING_USER:-[1-9]\d*:[1-9]\d*\}", COMPOSE["user"])


GENERATORS = read("kustomization.yaml", "configMapGenerator")


def test_an_edited_config_makes_new_pods_unless_the_server_reads_it_again():
    (volume,) = [volume for volume in POD["volumes"] if volume["name"] == "config"]
    # Kustomize puts the hash into the names that it finds here.
    sources = [source["configMap"]["name"] for source in volume["projected"]["sources"]]
    assert sources == [generator["name"] for generator in GENERATORS]
    values = RECIPES["kubernetes"].flags
    for generator in GENERATORS:
        # kubectl takes no file from outside the folder of the kustomization.
        assert all((DEPLOY / name).is_file() and "/" not in name for name in generator["files"])
        read_again = Path(values["model_config_file"]).name in generator["files"]
        assert generator.get("options", {}).get("disableNameSuffixHash", False) == read_again
    assert int(values["model_config_file_poll_wait_seconds"]) > 0
    assert not any("subPath" in mount for mount in CONTAINER["volumeMounts"])


def connection_age(values):
    pairs = [pair.split("=") for pair in values["grpc_channel_arguments"].split(",")]
    return {name: int(value) for name, value in pairs}


def test_clients_lose_no_request_when_their_connections_end(start_server):
    dockerfile = RECIPES["Dockerfile"].flags
    assert connection_age(dockerfile) == connection_age(RECIPES["kubernetes"].flags)
    arguments = dockerfile["grpc_channel_arguments"].replace("age_ms=30000", "age_ms=100")
    server = start_server(grpc_channel_arguments=arguments)
    seen = set()
    # One attempt: what leaves while the server ends the connection gRPC itself sends again, no server having seen it.
    with Client(Connection(server.address, attempts=1), "default") as client:

        def connected_thrice():
            assert client.predict({"x": np.array([2.0], np.float32)})["y"].tolist() == [3.0]
            seen.update(sockets(server.options.port, ESTABLISHED))
            return len(seen) > 2

        wait_until(connected_thrice)


def test_kubernetes_deployment():
    values, volumes = RECIPES["kubernetes"].flags, {volume["name"]: volume for volume in POD["volumes"]}
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert ports == {"grpc": int(values["port"]), "rest": int(values["rest_api_port"])}
    config = {f"/config/{name}" for generator in GENERATORS for name in generator["files"]}
    assert files_of(values) | {values["model_config_file"]} == config
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        # REST status requests would be counted with those of clients.
        assert CONTAINER[probe]["grpc"]["port"] == ports["grpc"]
    assert values["enable_grpc_healthcheck_service"] == "true", "the probes ask it"
    if any(model.version_labels for model in MODELS):
        assert values["allow_version_labels_for_unavailable_models"] == "true"
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == set(volumes)
    claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
    assert claim == read("kubernetes/models.yaml", "metadata.name")
    pause = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] > pause
    # A client that asked DNS just before the pod left it goes on to it until its next connection ends, and DNS caches.
    assert pause > 1.1 * connection_age(values)["grpc.max_connection_age_ms"] / 1000 + 30 + 30
    assert {"requests", "limits"} <= set(CONTAINER["resources"])
    assert RECIPES["kubernetes"].environment["MODEL_NAME"].split() == [model.name for model in MODELS]


def test_autoscalers_and_the_service():
    ports = {port["name"]: (port["port"], port["targetPort"]) for port in SERVICE["spec"]["ports"]}
    assert ports == {"grpc": (GRPC, "grpc"), "rest": (REST, "rest")}
    assert "replicas" not in DEPLOYMENT["spec"], "each apply would take back what the autoscaler did"
    default, by_requests = read("kubernetes/autoscaler.yaml"), read("kubernetes/autoscaler_by_requests.yaml")
    assert by_requests["metadata"]["name"] == default["metadata"]["name"], "one takes the other's place"
    for scaler in (default["spec"], by_requests["spec"]):
        assert scaler["scaleTargetRef"]["name"] == DEPLOYMENT["metadata"]["name"]
        assert scaler["minReplicas"] <= scaler["maxReplicas"]
    (metric,) = default["spec"]["metrics"]
    assert (metric["type"], metric["resource"]["name"]) == ("Resource", "cpu"), "known without an adapter"
    assert "cpu" in CONTAINER["resources"]["requests"]
    (metric,) = by_requests["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == RULE["name"]["as"]


def test_kserve():
    (volume,), (mount,) = PREDICTOR["volumes"], PREDICTOR["model"]["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/config")
    # The first line of the file says how that map is made.
    made = re.search(r"kubectl create configmap (\S+) (.*)", text("kserve.yaml"))
    files = [source.removeprefix("--from-file=serving/deploy/") for source in made[2].split()]
    assert made[1] == volume["configMap"]["name"] and all((DEPLOY / name).is_file() for name in files)
    assert {f"/config/{name}" for name in files} == {RECIPES["kserve"].flags["batching_parameters_file"], SCRIPT}


# Where each recipe has the versions of its model: the volume or the image, or what KServe mounts; and its server.
FOLDERS = {
    "Dockerfile": ("models/albert", "tf_serving_entrypoint.sh"),
    "compose": ("models/albert", "tf_serving_entrypoint.sh"),
    "kubernetes": ("models/albert", "tensorflow_model_server"),
    "kserve": ("mnt/models", "tensorflow_model_server"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_every_recipe_serves_the_versions_that_its_cpu_can_run(tmp_path, name):
    """Its own command and variables, below another root, with a server that prints the folder it would read."""
    recipe, (folder, server) = RECIPES[name], FOLDERS[name]
    for number, needs in ((1, "TensorFlow"), (2, "TensorFlow for x86 with oneDNN, a CPU with avx512f")):
        manifest = tmp_path / folder / str(number) / "assets.extra" / "manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"compute": {"requires": needs}}, indent=2))
    (tmp_path / "cpuinfo").write_text("flags : avx2\n")
    defaults = dict(re.findall(r"^(MODELS|LINKS)=\$\{\w+:-(.*)\}$", text("link_versions.sh"), re.MULTILINE))
    environment = defaults | recipe.environment
    environment |= {variable: f"{tmp_path}{environment[variable]}" for variable in defaults}
    assert recipe.command[:2] == ["sh", SCRIPT] and Path(recipe.command[2]).name == server
    environment |= {"PATH": os.defpath, "LINK_SECONDS": "0.1", "ALBERT_TF_CPUINFO": str(tmp_path / "cpuinfo")}
    command = ["sh", DEPLOY / "link_versions.sh", "sh", "-c", 'echo "$MODEL_BASE_PATH/$MODEL_NAME"']
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "version 2 needs a CPU with avx512f" in done.stderr
    # The start script of the image puts these two together; other servers have a flag or a file.
    (served,) = done.stdout.split()
    flag = recipe.flags.get("model_base_path")
    if name == "kubernetes":
        (flag,) = (model.base_path for model in MODELS if model.name == recipe.environment["MODEL_NAME"])
    assert flag is None or f"{tmp_path}{flag}" == served
    assert [version.name for version in Path(served).iterdir()] == ["1"]


KNOWN = {line.split()[2] for line in telemetry.exposition().splitlines() if line.startswith("# TYPE ")}
ALERTS = read("prometheus/alerts.yaml", "spec.groups.0.rules")
PANELS = read("grafana/dashboard.json", "panels")


def test_prometheus_looks_where_the_server_is():
    (job,) = read("prometheus/prometheus.yaml", "scrape_configs")
    assert job["metrics_path"] == MONITORING.path
    assert job["static_configs"][0]["targets"] == [f"serving:{REST}"]
    assert f'up{{job="{job["job_name"]}"}}' in ALERTS[0]["expr"]
    monitor = read("prometheus/service_monitor.yaml")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= SERVICE["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in SERVICE["spec"]["ports"]}
    assert endpoint["path"] == MONITORING.path
    # Prometheus names a job after the service; the alert that nothing answers asks for that name.
    assert f'job="{SERVICE["metadata"]["name"]}"' in ALERTS[0]["expr"]


def check_metrics(expression):
    """Only metrics that exist are asked for, in as many closing as opening brackets.

    Status requests over REST, as probes send them, have an empty API and are in no figure of requests; request_count,
    which has no API, is asked for failures alone.
    """
    # Without the suffixes that a histogram's series have.
    names = {re.sub("_(bucket|sum|count)$", "", n) if n not in KNOWN else n
             for n in re.findall(r":[a-z_:]+", expression)}  # fmt: skip
    assert names <= KNOWN and (names or "up{" in expression), expression
    assert expression.count("(") == expression.count(")")
    asked = len(re.findall(r'request_latency_[a-z]+"?[{,]API!=""', expression))
    assert expression.count("request_latency_") == asked
    assert expression.count("request_count") == expression.count('request_count{status!="OK"}')


def test_the_dashboard_asks_for_metrics_that_exist():
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        for target in panel["targets"]:
            check_metrics(target["expr"])
    assert {panel["datasource"]["uid"] for panel in PANELS} == {read("grafana/datasource.yaml", "datasources.0.uid")}
    volumes = read("compose.yaml", "services.grafana.volumes")
    (mounted,) = [mount for mount in volumes if "dashboard.json" in mount]
    assert mounted.split(":")[1].startswith(read("grafana/provider.yaml", "providers.0.options.path"))


def test_alerts_and_the_adapter_ask_for_metrics_that_exist():
    assert len(read("prometheus/alerts.yaml", "spec.groups")) == 1
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS) >= 4
    for rule in ALERTS:
        check_metrics(rule["expr"])
        assert re.fullmatch(r"\d+m", rule["for"]) and rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "action"} == set(rule["annotations"])
    check_metrics(RULE["seriesQuery"])
    check_metrics(RULE["metricsQuery"])
