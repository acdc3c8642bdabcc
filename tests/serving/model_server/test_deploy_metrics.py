"""serving/deploy: what Prometheus, Grafana and the autoscaler ask for is what the server says."""

import re

from serving.model_server import telemetry
from tests.serving.model_server.deploy_files import MONITORING, REST, RULE, SERVICE, read

KNOWN = {line.split()[2] for line in telemetry.exposition().splitlines() if line.startswith("# TYPE ")}
ALERTS = read("prometheus/alerts.yaml", "spec.groups.0.rules")
PANELS = read("grafana/dashboard.json", "panels")


def test_prometheus_looks_where_the_server_is():
    (job,) = read("prometheus/prometheus.yaml", "scrape_configs")
    assert job["metrics_path"] == MONITORING.path
    assert job["static_configs"][0]["targets"] == [f"serving:{REST}"]
    assert f'up{{job="{job["job_name"]}"}}' in ALERTS[0]["expr"]
    monitor = read("prometheus/service_monitor.yaml")
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "ServiceMonitor")
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
    alerts = read("prometheus/alerts.yaml")
    assert (alerts["apiVersion"], alerts["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert len(alerts["spec"]["groups"]) == 1
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS) >= 4
    for rule in ALERTS:
        check_metrics(rule["expr"])
        assert re.fullmatch(r"\d+m", rule["for"]) and rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "action"} == set(rule["annotations"])
    check_metrics(RULE["seriesQuery"])
    check_metrics(RULE["metricsQuery"])


def test_the_share_of_failures_is_known_where_no_request_ever_went_well():
    rules = {rule["alert"]: rule["expr"] for rule in ALERTS}
    panels = {panel["title"]: panel["targets"][0]["expr"] for panel in PANELS}
    failed = r'sum\(rate\(:tensorflow:serving:request_count\{status!="OK"\}\[.m\]\)\) by \(model_name\)'
    answered = r'sum\(rate\(:tensorflow:serving:request_latency_count\{API!=""\}\[.m\]\)\) by \(model_name\)'
    share = rf"{failed} / \({failed} \+ \({answered} or 0 \* {failed}\)\)"
    assert re.fullmatch(share + " > 0.01", rules["AlbertServingFails"])
    assert re.fullmatch(share, panels["Share of requests that fail"])
