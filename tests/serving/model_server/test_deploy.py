"""serving/deploy: each file is read as its tool reads it, and checked against the contract's flags and metrics."""

import dataclasses
import json
import os
import re
import subprocess
import time
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

DEPLOY = Path(flags.__file__).parents[1] / "deploy"
GRPC, REST = 8500, 8501
OWN_FLAGS = {"bind_address", "access_log", "help", "rest_api_max_body_bytes", "drain_seconds"}
REAL_FLAGS = {field.name: field.type for field in dataclasses.fields(flags.Options) if field.name not in OWN_FLAGS}


def documents(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def only(name):
    (document,) = documents(name)
    return document


def check_flags(arguments):
    """Each must be a flag of the real server with a value it takes."""
    for argument in arguments:
        name = argument.removeprefix("--").partition("=")[0]
        assert name in REAL_FLAGS, argument
    _, unknown = flags.parse(arguments)
    assert unknown == []
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


def test_every_file_is_looked_at():
    looked_at = {
        "Dockerfile", "compose.yaml", "batching.config", "monitoring.config", "models.config", "kserve.yaml",
        "gateway/Dockerfile", "gateway/gateway.yaml",
        "kustomization.yaml", "link_versions.sh",
        "grafana/dashboard.json", "grafana/datasource.yaml", "grafana/provider.yaml",
        *(f"prometheus/{name}.yaml" for name in ("prometheus", "adapter_rules", "service_monitor", "alerts")),
        *(f"kubernetes/{name}.yaml" for name in ("deployment", "service", "models", "autoscaler", "network_policy",
                                                 "autoscaler_by_requests", "disruption_budget")),
    }  # fmt: skip
    assert {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()} == looked_at


def configured_models():
    text = (DEPLOY / "models.config").read_text()
    return text_format.Parse(text, model_server_config_pb2.ModelServerConfig()).model_config_list.config


def test_configs_parse_and_fit():
    batching = text_format.Parse((DEPLOY / "batching.config").read_text(), BatchingParameters())
    BatchingOptions.from_proto(batching).check()
    monitoring = text_format.Parse((DEPLOY / "monitoring.config").read_text(), MonitoringConfig())
    assert monitoring.prometheus_config.enable
    for model in configured_models():
        assert model.model_platform == "tensorflow"
        # What a label names stays, whatever newer versions are written.
        assert set(model.version_labels.values()) <= set(model.model_version_policy.specific.versions)


def test_dockerfile():
    text = (DEPLOY / "Dockerfile").read_text()
    values = check_flags(recipes()["Dockerfile"].arguments)
    copied = re.search(r"^COPY --chown=1000:1000 (serving/deploy/.*) /config/$", text, re.MULTILINE)[1].split()
    repository = DEPLOY.parents[1]
    assert all((repository / path).is_file() for path in copied)
    names = {Path(path).name for path in copied}
    assert {f"/config/{name}" for name in names} == {
        values["monitoring_config_file"], values["batching_parameters_file"], SCRIPT,
    }  # fmt: skip
    assert re.search(rf"^EXPOSE {GRPC} {REST}$", text, re.MULTILINE)
    # A number: Kubernetes cannot tell of a name that it is not root.
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["1000:1000"]
    assert text.count("COPY --chown=1000:1000 ") == text.count("COPY "), "that user can read all of it"


def test_docker_is_sent_what_the_image_takes():
    """.dockerignore, which lies where the build context begins: everything is left out, and then let in by name."""
    repository = DEPLOY.parents[1]
    rules = [line for line in (repository / ".dockerignore").read_text().split("\n") if line and line[0] != "#"]
    assert rules[0] == "**"
    let_in = [rule[1:] for rule in rules if rule.startswith("!")]
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    sources = [word for copy in re.findall(r"^COPY \S+ (.*)$", dockerfile, re.MULTILINE) for word in copy.split()[:-1]]
    assert {source.replace("${MODEL_NAME}", "**") for source in sources} == set(let_in)


def test_compose():
    services = only("compose.yaml")["services"]
    values = check_flags(services["serving"]["command"])
    mounts = {}
    for service in services.values():
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:"), "published on this machine only"
        for mount in service.get("volumes", []):
            if mount.startswith("./"):
                source, target = mount.split(":")[:2]
                assert (DEPLOY / source).is_file(), mount
                mounts[target] = source
    assert {values["monitoring_config_file"], values["batching_parameters_file"], SCRIPT} <= set(mounts)
    serving = services["serving"]
    assert serving["read_only"] and serving["cap_drop"] == ["ALL"]
    assert serving["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\$\{SERVING_USER:-[1-9]\d*:[1-9]\d*\}", serving["user"])
    # Process 1 is not ended by a SIGTERM that it does not handle.
    assert serving["init"] is True
    assert services["serving"]["ports"] == [f"127.0.0.1:{port}:{port}" for port in (GRPC, REST)]


def test_prometheus():
    (job,) = only("prometheus/prometheus.yaml")["scrape_configs"]
    monitoring = text_format.Parse((DEPLOY / "monitoring.config").read_text(), MonitoringConfig())
    assert job["metrics_path"] == monitoring.prometheus_config.path
    assert job["static_configs"][0]["targets"] == [f"serving:{REST}"]
    down = only("prometheus/alerts.yaml")["spec"]["groups"][0]["rules"][0]
    assert f'up{{job="{job["job_name"]}"}}' in down["expr"]


def metric_names(text):
    """Names in a PromQL text without the suffixes a histogram's series have."""
    return {re.sub("_(bucket|sum|count)$", "", n) if n not in KNOWN else n for n in re.findall(r":[a-z_:]+", text)}


KNOWN = {line.split()[2] for line in telemetry.exposition().splitlines() if line.startswith("# TYPE ")}


def test_dashboard_asks_only_for_metrics_that_exist():
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for target in panel["targets"]:
            names = metric_names(target["expr"])
            assert names, target
            assert names <= KNOWN, target
            assert target["expr"].count("(") == target["expr"].count(")")
    datasource = only("grafana/datasource.yaml")["datasources"][0]
    assert {panel["datasource"]["uid"] for panel in panels} == {datasource["uid"]}
    folder = only("grafana/provider.yaml")["providers"][0]["options"]["path"]
    mounted = [m for m in only("compose.yaml")["services"]["grafana"]["volumes"] if "dashboard.json" in m]
    assert mounted[0].split(":")[1].startswith(folder)


def test_alerts_ask_only_for_metrics_that_exist():
    alerts = only("prometheus/alerts.yaml")
    assert (alerts["apiVersion"], alerts["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    (group,) = alerts["spec"]["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) >= 4
    for rule in group["rules"]:
        assert metric_names(rule["expr"]) <= KNOWN
        assert metric_names(rule["expr"]) or "up{" in rule["expr"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert re.fullmatch(r"\d+m", rule["for"]) and rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "action"} == set(rule["annotations"])


def test_the_share_of_failures_is_known_where_no_request_ever_went_well():
    rules = {rule["alert"]: rule["expr"] for rule in only("prometheus/alerts.yaml")["spec"]["groups"][0]["rules"]}
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    panels = {panel["title"]: panel["targets"][0]["expr"] for panel in dashboard["panels"]}
    failed = r'sum\(rate\(:tensorflow:serving:request_count\{status!="OK"\}\[.m\]\)\) by \(model_name\)'
    answered = r'sum\(rate\(:tensorflow:serving:request_latency_count\{API!=""\}\[.m\]\)\) by \(model_name\)'
    share = rf"{failed} / \({failed} \+ \({answered} or 0 \* {failed}\)\)"
    assert re.fullmatch(share + " > 0.01", rules["AlbertServingFails"])
    assert re.fullmatch(share, panels["Share of requests that fail"])


def test_service_monitor_finds_the_service(kubernetes):
    monitor, service = only("prometheus/service_monitor.yaml"), kubernetes["Service"]
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    monitoring = text_format.Parse((DEPLOY / "monitoring.config").read_text(), MonitoringConfig())
    assert endpoint["path"] == monitoring.prometheus_config.path
    # Prometheus names a job after the service; the alert that nothing answers asks for that name.
    down = only("prometheus/alerts.yaml")["spec"]["groups"][0]["rules"][0]
    assert f'job="{service["metadata"]["name"]}"' in down["expr"]


@pytest.fixture(scope="module")
def kustomization():
    return only("kustomization.yaml")


@pytest.fixture(scope="module")
def kubernetes(kustomization):
    resources = [only(name) for name in kustomization["resources"]]
    instead = {"kubernetes/autoscaler_by_requests.yaml"}
    listed = {f"kubernetes/{path.name}" for path in (DEPLOY / "kubernetes").iterdir()}
    assert set(kustomization["resources"]) | instead == listed
    return {resource["kind"]: resource for resource in resources}


def test_kubernetes_kinds(kubernetes):
    """Only kinds that every cluster knows: what an operator brings along is applied by itself."""
    assert {kind: resource["apiVersion"] for kind, resource in kubernetes.items()} == {
        "PersistentVolumeClaim": "v1",
        "Deployment": "apps/v1",
        "Service": "v1",
        "HorizontalPodAutoscaler": "autoscaling/v2",
        "PodDisruptionBudget": "policy/v1",
        "NetworkPolicy": "networking.k8s.io/v1",
    }
    for resource in kubernetes.values():
        assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", resource["metadata"]["name"])


def generated_configs(kustomization):
    """Of each generated ConfigMap its files, and whether its name changes with them."""
    return {
        generator["name"]: (generator["files"], not generator.get("options", {}).get("disableNameSuffixHash", False))
        for generator in kustomization["configMapGenerator"]
    }


def test_an_edited_config_makes_new_pods_unless_the_server_reads_it_again(kubernetes, kustomization):
    maps = generated_configs(kustomization)
    pod = kubernetes["Deployment"]["spec"]["template"]["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "config"]
    # Kustomize puts the hash into the names that it finds here.
    assert [source["configMap"]["name"] for source in volume["projected"]["sources"]] == list(maps)
    (container,) = pod["containers"]
    values = check_flags(container["args"])
    for files, changes_name in maps.values():
        # kubectl takes no file from outside the folder of the kustomization.
        assert all((DEPLOY / name).is_file() and "/" not in name for name in files)
        read_again = {Path(values["model_config_file"]).name}
        assert changes_name == (not set(files) & read_again)
    assert int(values["model_config_file_poll_wait_seconds"]) > 0
    assert not any("subPath" in mount for mount in container["volumeMounts"])


def check_hardened(pod, container):
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_pods_have_no_more_rights_than_they_need(kubernetes):
    pod = kubernetes["Deployment"]["spec"]["template"]["spec"]
    check_hardened(pod, *pod["containers"])
    assert pod["automountServiceAccountToken"] is False
    predictor = only("kserve.yaml")["spec"]["predictor"]
    check_hardened(predictor, predictor["model"])


def test_pods_are_spread_over_nodes_and_zones(kubernetes):
    template = kubernetes["Deployment"]["spec"]["template"]
    constraints = template["spec"]["topologySpreadConstraints"]
    assert {c["topologyKey"] for c in constraints} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    for constraint in constraints:
        assert constraint["labelSelector"]["matchLabels"] == template["metadata"]["labels"]
        assert constraint["maxSkew"] == 1 and constraint["whenUnsatisfiable"] == "ScheduleAnyway"


def test_network_policy(kubernetes):
    policy, template = kubernetes["NetworkPolicy"]["spec"], kubernetes["Deployment"]["spec"]["template"]
    assert policy["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"} and policy["egress"] == []
    names = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    clients, prometheus = ({port["port"] for port in rule["ports"]} for rule in policy["ingress"])
    assert clients == names and prometheus == {"rest"}


def connection_age(values):
    pairs = [pair.split("=") for pair in values["grpc_channel_arguments"].split(",")]
    return {name: int(value) for name, value in pairs}


def test_clients_lose_no_request_when_their_connections_end(start_server, half_plus_two):
    dockerfile = check_flags(recipes()["Dockerfile"].arguments)
    assert connection_age(dockerfile) == connection_age(check_flags(recipes()["kubernetes"].arguments))
    arguments = dockerfile["grpc_channel_arguments"].replace("age_ms=30000", "age_ms=100")
    server = start_server(grpc_channel_arguments=arguments)
    # One attempt: what leaves while the server ends the connection gRPC itself sends again, no server having seen it.
    with Client(Connection(server.address, attempts=1), "default") as client:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            assert client.predict({"x": np.array([2.0], np.float32)})["y"].tolist() == [3.0]


def test_kubernetes_deployment(kubernetes, kustomization):
    spec = kubernetes["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    values = check_flags(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": int(values["port"]), "rest": int(values["rest_api_port"])}
    config = {f"/config/{name}" for files, _ in generated_configs(kustomization).values() for name in files}
    flags = ("model_config_file", "monitoring_config_file", "batching_parameters_file")
    assert {values[flag] for flag in flags} == config - {SCRIPT}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        # REST status requests would be counted with those of clients.
        assert container[probe]["grpc"]["port"] == ports["grpc"]
    assert values["enable_grpc_healthcheck_service"] == "true", "the probes ask it"
    if any(model.version_labels for model in configured_models()):
        assert values["allow_version_labels_for_unavailable_models"] == "true"
    cores = container["resources"]["limits"]["cpu"]
    assert values["tensorflow_intra_op_parallelism"] == values["tensorflow_inter_op_parallelism"] == cores
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
    assert claim == kubernetes["PersistentVolumeClaim"]["metadata"]["name"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pause
    assert pod["shareProcessNamespace"] is True, "process 1 is not ended by a SIGTERM that it does not handle"
    # A client that asked DNS just before the pod left it goes on to it until its next connection ends, and DNS caches.
    age_s = connection_age(values)["grpc.max_connection_age_ms"] / 1000
    assert pause > 1.1 * age_s + 30 + 30
    assert {"requests", "limits"} <= set(container["resources"])


def test_kubernetes_parts_name_each_other(kubernetes):
    labels = kubernetes["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert kubernetes["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert kubernetes["Service"]["spec"]["selector"] == labels
    assert kubernetes["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    ports = {port["name"]: (port["port"], port["targetPort"]) for port in kubernetes["Service"]["spec"]["ports"]}
    assert ports == {"grpc": (GRPC, "grpc"), "rest": (REST, "rest")}


def test_autoscalers(kubernetes):
    deployment = kubernetes["Deployment"]
    assert "replicas" not in deployment["spec"], "each apply would take back what the autoscaler did"
    default, by_requests = kubernetes["HorizontalPodAutoscaler"], only("kubernetes/autoscaler_by_requests.yaml")
    for scaler in (default, by_requests):
        assert scaler["metadata"]["name"] == default["metadata"]["name"], "one takes the other's place"
        assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
        assert scaler["spec"]["minReplicas"] <= scaler["spec"]["maxReplicas"]
    (metric,) = default["spec"]["metrics"]
    assert (metric["type"], metric["resource"]["name"]) == ("Resource", "cpu"), "known without an adapter"
    assert "cpu" in deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    (metric,) = by_requests["spec"]["metrics"]
    (rule,) = only("prometheus/adapter_rules.yaml")["rules"]["custom"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    assert metric_names(rule["seriesQuery"] + rule["metricsQuery"]) <= KNOWN


def test_kserve():
    service = only("kserve.yaml")
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    predictor = service["spec"]["predictor"]
    model = predictor["model"]
    assert model["modelFormat"]["name"] == "tensorflow"
    values, cores = check_flags(model["args"]), model["resources"]["limits"]["cpu"]
    assert values["tensorflow_intra_op_parallelism"] == values["tensorflow_inter_op_parallelism"] == cores
    (volume,), (mount,) = predictor["volumes"], model["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/config")
    # The first line of the file says how that map is made.
    made = re.search(r"kubectl create configmap (\S+) (.*)", (DEPLOY / "kserve.yaml").read_text())
    files = [source.removeprefix("--from-file=serving/deploy/") for source in made[2].split()]
    assert made[1] == volume["configMap"]["name"] and all((DEPLOY / name).is_file() for name in files)
    assert {f"/config/{name}" for name in files} == {values["batching_parameters_file"], SCRIPT}


SCRIPT = "/config/link_versions.sh"


class Recipe(NamedTuple):
    """How a recipe starts the server: command and flags, and the variables that the script in front of it reads."""

    command: list[str]
    arguments: list[str]
    environment: dict[str, str]


def recipes() -> dict[str, Recipe]:
    dockerfile = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
    command, arguments = (
        json.loads(re.search(rf"^{word} (\[.*?\])$", dockerfile, re.MULTILINE)[1]) for word in ("ENTRYPOINT", "CMD")
    )
    serving = only("compose.yaml")["services"]["serving"]
    (container,) = only("kubernetes/deployment.yaml")["spec"]["template"]["spec"]["containers"]
    model = only("kserve.yaml")["spec"]["predictor"]["model"]
    name = {"MODEL_NAME": "albert"}
    return {
        "Dockerfile": Recipe(command, arguments, name),
        "compose": Recipe(serving["entrypoint"], serving["command"], name),
        "kubernetes": Recipe(container["command"], container["args"], variables(container)),
        "kserve": Recipe(model["command"], model["args"], variables(model)),
    }


def variables(container) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"]}


def test_every_recipe_batches_and_takes_as_many_requests_at_once():
    values = [check_flags(recipe.arguments) for recipe in recipes().values()]
    batching = {(flags["enable_batching"], flags["batching_parameters_file"]) for flags in values}
    assert batching == {("true", "/config/batching.config")}
    assert {flags["grpc_max_threads"] for flags in values} == {"64"}


# Where each recipe has the versions of its model: the volume or the image, or what KServe mounts.
FOLDERS = {"Dockerfile": "models/albert", "compose": "models/albert", "kubernetes": "models/albert",
           "kserve": "mnt/models"}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_every_recipe_serves_the_versions_that_its_cpu_can_run(tmp_path, name):
    """Its own command and variables, below another root, with a server that says where it is told to look."""
    recipe = recipes()[name]
    for number, needs in ((1, "TensorFlow"), (2, "TensorFlow for x86 with oneDNN, a CPU with avx512f")):
        manifest = tmp_path / FOLDERS[name] / str(number) / "assets.extra" / "manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"compute": {"requires": needs}}, indent=2))
    (tmp_path / "cpuinfo").write_text("flags : avx2\n")
    script = (DEPLOY / "link_versions.sh").read_text()
    links = re.search(r"^LINKS=\$\{LINKS:-(.*)\}$", script, re.MULTILINE)[1]
    sources = recipe.environment.get("MODELS", re.search(r"^MODELS=\$\{MODELS:-(.*)\}$", script, re.MULTILINE)[1])
    environment = recipe.environment | {"MODELS": f"{tmp_path}{sources}", "LINKS": f"{tmp_path}{links}"}
    sh, path, *server = recipe.command
    assert (sh, path) == ("sh", SCRIPT)
    assert Path(server[0]).name == ("tf_serving_entrypoint.sh" if name in ("Dockerfile", "compose")
                                    else "tensorflow_model_server")  # fmt: skip
    environment |= {"PATH": os.defpath, "LINK_SECONDS": "0.1", "ALBERT_TF_CPUINFO": str(tmp_path / "cpuinfo")}
    says_where = ["sh", "-c", 'echo "$MODEL_BASE_PATH/$MODEL_NAME"']
    done = subprocess.run(
        ["sh", DEPLOY / "link_versions.sh", *says_where], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0 and "version 2 needs a CPU with avx512f" in done.stderr
    # The start script of the image puts these two together; other servers are told by flag or file.
    (served,) = done.stdout.split()
    flag = check_flags(recipe.arguments).get("model_base_path")
    if name == "kubernetes":
        (flag,) = (model.base_path for model in configured_models() if model.name == recipe.environment["MODEL_NAME"])
    assert flag is None or f"{tmp_path}{flag}" == served
    assert [version.name for version in Path(served).iterdir()] == ["1"]


def test_kubernetes_links_every_configured_model():
    names = recipes()["kubernetes"].environment["MODEL_NAME"].split()
    assert names == [model.name for model in configured_models()]


def test_probes_are_in_no_figure_of_requests(start_server, half_plus_two):
    """Status requests over REST have an empty API; request_count, which has no API, is asked for failures alone."""
    panels = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())["panels"]
    (rule,) = only("prometheus/adapter_rules.yaml")["rules"]["custom"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += [rule["expr"] for rule in only("prometheus/alerts.yaml")["spec"]["groups"][0]["rules"]]
    for text in (*asked, rule["seriesQuery"], rule["metricsQuery"]):
        assert text.count("request_latency_") == len(re.findall(r'request_latency_[a-z]+"?[{,]API!=""', text))
        assert text.count("request_count") == text.count('request_count{status!="OK"}')
