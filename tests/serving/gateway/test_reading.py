"""What the gateway reads of a model when it starts: a call that fails for a while is made again, not gone without."""

import grpc
import pytest

from tests.serving.gateway.conftest import wait_until


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"])
def test_class_names_are_asked_again_of_a_server_that_was_busy(fake_server, gateway_to, code):
    model, server = fake_server("classifier")
    failed = []

    def busy(asked, context):
        if asked.model_spec.signature_name == "classify" and len(failed) < 2:
            failed.append(asked)
            context.abort(grpc.StatusCode[code], "not now")

    model.before = busy
    gateway = gateway_to(server.target, live=False)
    wait_until(lambda: gateway.service.live)
    assert len(failed) == 2
    answer = gateway.http.post("/predict", json={"inputs": "a fine film"}).json()
    assert {one["label"] for one in answer} == {"dull", "fine"}


def test_a_model_that_refuses_to_name_its_classes_is_served_with_numbers(fake_server, gateway_to):
    model, server = fake_server("classifier")

    def refuses(asked, context):
        if asked.model_spec.signature_name == "classify":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such signature")

    model.before = refuses
    answer = gateway_to(server.target).http.post("/predict", json={"inputs": "a fine film"}).json()
    # The likeliest one's name is in the answer itself.
    assert answer[0]["label"] in ("dull", "fine") and answer[1]["label"] in ("0", "1")
