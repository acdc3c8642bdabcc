"""The files of serving/deploy, as their tools read them."""

import functools
from pathlib import Path

import yaml
from google.protobuf import text_format

from serving.model_server import flags
from serving.wire.protos import MonitoringConfig

DEPLOY = Path(flags.__file__).parents[1] / "deploy"
GRPC, REST = 8500, 8501


def text(name: str) -> str:
    return (DEPLOY / name).read_text()


def read(name: str, path: str = ""):
    """What stands at a path, as `spec.containers.0.name`, of a file with one YAML or JSON document."""
    (document,) = yaml.safe_load_all(text(name))
    steps = path.split(".") if path else ()
    return functools.reduce(lambda found, step: found[int(step) if step.isdigit() else step], steps, document)


MONITORING = text_format.Parse(text("monitoring.config"), MonitoringConfig()).prometheus_config
SERVICE = read("kubernetes/service.yaml")
RULE = read("prometheus/adapter_rules.yaml", "rules.custom.0")
