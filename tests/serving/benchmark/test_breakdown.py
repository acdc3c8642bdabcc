"""Where the time goes, from a page as TensorFlow Serving writes it."""

import pytest

from serving.benchmark import breakdown
from tfrecords.base.errors import UserError

# As a server writes it that probes ask for the model's status, over REST, now and then.
PAGE = """# TYPE :tensorflow:serving:request_count counter
:tensorflow:serving:request_count{{model_name="m",status="OK"}} 777
:tensorflow:serving:request_count{{model_name="other",status="OK"}} 7
# TYPE :tensorflow:serving:request_latency histogram
:tensorflow:serving:request_latency_bucket{{model_name="m",API="Predict",entrypoint="GRPC",le="10"}} 0
:tensorflow:serving:request_latency_bucket{{model_name="m",API="Predict",entrypoint="GRPC",le="+Inf"}} {count}
:tensorflow:serving:request_latency_sum{{model_name="m",API="Predict",entrypoint="GRPC"}} {request}
:tensorflow:serving:request_latency_count{{model_name="m",API="Predict",entrypoint="GRPC"}} {count}
:tensorflow:serving:request_latency_sum{{model_name="m",API="predict",entrypoint="REST"}} {count}e6
:tensorflow:serving:request_latency_count{{model_name="m",API="predict",entrypoint="REST"}} {count}
:tensorflow:serving:request_latency_sum{{model_name="m",API="",entrypoint="REST"}} 7777
:tensorflow:serving:request_latency_count{{model_name="m",API="",entrypoint="REST"}} 600
:tensorflow:serving:request_latency_sum{{model_name="other",API="Predict",entrypoint="GRPC"}} 7777
:tensorflow:serving:request_latency_count{{model_name="other",API="Predict",entrypoint="GRPC"}} 50
# TYPE :tensorflow:serving:runtime_latency histogram
:tensorflow:serving:runtime_latency_bucket{{model_name="m",API="Predict",runtime="TF1",le="+Inf"}} {count}
:tensorflow:serving:runtime_latency_sum{{model_name="m",API="Predict",runtime="TF1"}} {session}
:tensorflow:serving:runtime_latency_count{{model_name="m",API="Predict",runtime="TF1"}} {count}
# TYPE :tensorflow:serving:batching_session:queuing_latency histogram
:tensorflow:serving:batching_session:queuing_latency_bucket{{thread_pool_name="p",le="+Inf"}} {count}
:tensorflow:serving:batching_session:queuing_latency_sum{{thread_pool_name="p"}} {queue}
:tensorflow:serving:batching_session:queuing_latency_count{{thread_pool_name="p"}} {count}
"""


UNKNOWN = dict.fromkeys(["server", "session", "queue"])


def reading(count, request, session, queue, model="m"):
    return breakdown.parse(PAGE.format(count=count, request=request, session=session, queue=queue), model)


def test_means_are_of_what_happened_between_two_readings():
    before, after = reading(10, 5e5, 4e5, 1e5), reading(30, 5.8e5, 4.6e5, 1.2e5)
    assert breakdown.means(before, after) == {"server": 4.0, "session": 3.0, "queue": 1.0}
    assert breakdown.means(before, after, "rest") == {"server": 1000.0, "session": 3.0, "queue": 1.0}


def test_requests_so_far_are_the_models_own_and_no_probes():
    # 30 over gRPC, 30 over REST.
    assert breakdown.requests_so_far(reading(30, 1.0, 1.0, 1.0)) == 60
    assert breakdown.requests_so_far(reading(0, 0.0, 0.0, 0.0)) == 0


def test_nothing_between_two_readings_is_no_mean():
    same = reading(10, 1.0, 1.0, 1.0)
    for before, after in ((same, same), ({}, {}), ({}, same)):
        assert breakdown.means(before, after) == UNKNOWN
    assert breakdown.requests_so_far(reading(10, 1.0, 1.0, 1.0, model="absent")) == 0


def test_parts_add_up_to_the_mean():
    costs = {"client_encode": 0.1, "client_decode": 0.2}
    parts = breakdown.parts_of_mean(5.0, costs, {"server": 4.0, "session": 3.0, "queue": 1.0})
    assert parts == costs | {"wire": 1.0, "server_queue": 1.0, "server_compute": 2.0, "server_other": 1.0}
    silent = breakdown.parts_of_mean(5.0, costs, UNKNOWN)
    assert silent == costs | dict.fromkeys(["wire", "server_queue", "server_compute", "server_other"])


def test_page_is_fetched_and_its_absence_or_its_end_is_said(web):
    page = PAGE.format(count=3, request=9.0, session=6.0, queue=0.0)
    # The last server is killed while it sends its page.
    server = web((200, page.encode()), (404, b""), (200, b"# TYPE", 1000))
    url = breakdown.metrics_url("127.0.0.1:8500", server.server_port)
    assert breakdown.requests_so_far(breakdown.read(url, "m")) == 6
    assert server.paths == ["/monitoring/prometheus/metrics"]
    for words in ("--monitoring_config_file", "no metrics at"):
        with pytest.raises(UserError, match=words):
            breakdown.read(url, "m")
