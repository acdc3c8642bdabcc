"""serving/deploy: each file is read as its tool reads it, and checked against the contract's flags and metrics."""

import dataclasses
import json
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from serving.client import Client, Connection
from serving.model_server import flags
from serving.model_server.batching import BatchingOptions
from serving.wire.protos import BatchingParameters
from tests.serving.model_server.conftest import ESTABLISHED, sockets, wait_for
from tests.serving.model_server.deploy_files import DEPLOY, GRPC, MONITORING, REST, RULE, SERVICE, read, text

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


def test_every_file_is_looked_at():
    looked_at = {
        "Dockerfile", "compose.yaml", "server/Dockerfile",
        "batching.config", "monitoring.config", "models.config", "kserve.yaml",
        "gateway/Dockerfile", "gateway/gateway.yaml", "gateway/kustomization.yaml",
        "kustomization.yaml", "link_versions.sh",
        "edge/nginx.conf", "grafana/dashboard.json", "grafana/datasource.yaml", "grafana/provider.yaml",
        *(f"prometheus/{name}.yaml" for name in ("prometheus", "adapter_rules", "service_monitor", "alerts")),
        *(f"kubernetes/{name}.yaml" for name in ("deployment", "service", "models", "autoscaler", "network_policy",
                                                 "autoscaler_by_requests", "disruption_budget")),
    }  # fmt: skip
    assert {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()} == looked_at


MODELS = text_format.Parse(text("models.config"), model_server_config_pb2.ModelServerConfig()).model_config_list.config


def test_configs_parse_and_fit():
    BatchingOptions.from_proto(text_format.Parse(text("batching.config"), BatchingParameters())).check()
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
    def flags(self) -> dict[str, str]:
        return check_flags(self.arguments)


def in_dockerfile(word: str) -> list[str]:
    return json.loads(re.search(rf"^{word} (\[.*?\])$", text("server/Dockerfile").replace("\\\n", ""), re.MULTILINE)[1])


def variables(container) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"]}


DEPLOYMENT = read("kubernetes/deployment.yaml")
TEMPLATE = DEPLOYMENT["spec"]["template"]
POD, LABELS = TEMPLATE["spec"], TEMPLATE["metadata"]["labels"]
(CONTAINER,) = POD["containers"]
COMPOSE, PREDICTOR = read("compose.yaml", "services.serving"), read("kserve.yaml", "spec.predictor")
RECIPES = {
    "Dockerfile": Recipe(in_dockerfile("ENTRYPOINT"), in_dockerfile("CMD"), {"MODEL_NAME": "albert"}),
    "compose": Recipe(COMPOSE["entrypoint"], COMPOSE["command"], {"MODEL_NAME": "albert"}),
    "kubernetes": Recipe(CONTAINER["command"], CONTAINER["args"], variables(CONTAINER)),
    "kserve": Recipe(PREDICTOR["model"]["command"], PREDICTOR["model"]["args"], variables(PREDICTOR["model"])),
}


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
    assert COMPOSE["read_only"] and COMPOSE["cap_drop"] == ["ALL"]
    assert COMPOSE["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\$\{SERVING_USER:-[1-9]\d*:[1-9]\d*\}", COMPOSE["user"])
    # Process 1 is not ended by a SIGTERM that it does not handle.
    assert COMPOSE["init"] is True
    assert COMPOSE["ports"] == [f"127.0.0.1:{port}:{port}" for port in (GRPC, REST)]


def test_kubernetes_kinds_and_names():
    """Only kinds that every cluster knows: what an operator brings along is applied by itself."""
    names = read("kustomization.yaml", "resources")
    listed = {f"kubernetes/{path.name}" for path in (DEPLOY / "kubernetes").iterdir()}
    assert {*names, "kubernetes/autoscaler_by_requests.yaml"} == listed
    resources = [read(name) for name in names]
    assert {resource["kind"]: resource["apiVersion"] for resource in resources} == {
        "PersistentVolumeClaim": "v1",
        "Deployment": "apps/v1",
        "Service": "v1",
        "HorizontalPodAutoscaler": "autoscaling/v2",
        "PodDisruptionBudget": "policy/v1",
        "NetworkPolicy": "networking.k8s.io/v1",
    }
    for resource in resources:
        assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", resource["metadata"]["name"])


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


@pytest.mark.parametrize(("pod", "container"), [(POD, CONTAINER), (PREDICTOR, PREDICTOR["model"])])
def test_pods_have_no_more_rights_than_they_need(pod, container):
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["automountServiceAccountToken"] is False


def test_pods_are_spread_over_nodes_and_zones():
    constraints = POD["topologySpreadConstraints"]
    assert {c["topologyKey"] for c in constraints} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    for constraint in constraints:
        assert constraint["labelSelector"]["matchLabels"] == LABELS
        assert constraint["maxSkew"] == 1 and constraint["whenUnsatisfiable"] == "ScheduleAnyway"


def test_network_policy():
    policy = read("kubernetes/network_policy.yaml", "spec")
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"} and policy["egress"] == []
    clients, prometheus = ({port["port"] for port in rule["ports"]} for rule in policy["ingress"])
    assert clients == {port["name"] for port in CONTAINER["ports"]} and prometheus == {"rest"}


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

        def connected_thrice() -> bool:
            assert client.predict({"x": np.array([2.0], np.float32)})["y"].tolist() == [3.0]
            seen.update(sockets(server.options.port, ESTABLISHED))
            return len(seen) > 2

        assert wait_for(connected_thrice)


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
    assert POD["shareProcessNamespace"] is True, "process 1 is not ended by a SIGTERM that it does not handle"
    # A client that asked DNS just before the pod left it goes on to it until its next connection ends, and DNS caches.
    assert pause > 1.1 * connection_age(values)["grpc.max_connection_age_ms"] / 1000 + 30 + 30
    assert {"requests", "limits"} <= set(CONTAINER["resources"])
    assert RECIPES["kubernetes"].environment["MODEL_NAME"].split() == [model.name for model in MODELS]


def test_kubernetes_parts_name_each_other():
    for file, path in (
        ("deployment", "selector.matchLabels"), ("service", "selector"), ("disruption_budget", "selector.matchLabels"),
        ("network_policy", "podSelector.matchLabels"),
    ):  # fmt: skip
        assert read(f"kubernetes/{file}.yaml", f"spec.{path}") == LABELS
    ports = {port["name"]: (port["port"], port["targetPort"]) for port in SERVICE["spec"]["ports"]}
    assert ports == {"grpc": (GRPC, "grpc"), "rest": (REST, "rest")}


def test_autoscalers():
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
    service, model = read("kserve.yaml"), PREDICTOR["model"]
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert model["modelFormat"]["name"] == "tensorflow"
    (volume,), (mount,) = PREDICTOR["volumes"], model["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/config")
    # The first line of the file says how that map is made.
    made = re.search(r"kubectl create configmap (\S+) (.*)", text("kserve.yaml"))
    files = [source.removeprefix("--from-file=serving/deploy/") for source in made[2].split()]
    assert made[1] == volume["configMap"]["name"] and all((DEPLOY / name).is_file() for name in files)
    assert {f"/config/{name}" for name in files} == {RECIPES["kserve"].flags["batching_parameters_file"], SCRIPT}


def test_every_recipe_batches_and_takes_as_many_requests_at_once():
    for recipe in RECIPES.values():
        values = recipe.flags
        assert (values["enable_batching"], values["batching_parameters_file"]) == ("true", "/config/batching.config")
        assert values["grpc_max_threads"] == "64"
        assert values["xla_cpu_compilation_enabled"] == "true", "an export with --engine=xla loads"
    for name, container in (("kubernetes", CONTAINER), ("kserve", PREDICTOR["model"])):
        values, cores = RECIPES[name].flags, container["resources"]["limits"]["cpu"]
        assert values["tensorflow_intra_op_parallelism"] == values["tensorflow_inter_op_parallelism"] == cores


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
