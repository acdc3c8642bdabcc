"""Processes that are killed, told to stop, or whose clock goes back."""

import signal
import time

import pytest

from tests.faults.stage import answers, check_ends_in_a_line, export, load, state_of, wait_for

pytestmark = [pytest.mark.slow("faults"), pytest.mark.timeout(900)]


def test_a_killed_server_is_503_with_retry_after_until_it_is_back(stage):
    server, gateway, _ = stage.server_and_gateway()
    with load(gateway.ports, 4) as counts:
        server.end(signal.SIGKILL)
        refused = counts.refused
        wait_for(lambda: counts.refused > refused + 4, "the gateway says that the server is gone")
        stage.server(ports=server.ports)
        counts.wait_for_more(20, "the gateway answers again")


def test_a_killed_gateway_answers_again_at_once(stage):
    server, gateway, _ = stage.server_and_gateway()
    with load(gateway.ports, 4) as counts:
        gateway.end(signal.SIGKILL)
        stage.gateway(server.target, port=gateway.http)
        counts.wait_for_more(20, "the gateway answers again")


def _wait_for_part(process, output):
    """Waits until scoring has written another part, or has ended."""

    def parts():
        return len(list(output.glob(".parts/0*")))

    before = parts()
    wait_for(lambda: parts() > before or not process.runs, "a part is written")


def test_scoring_that_loses_its_server_ends_in_one_line_and_goes_on(stage):
    output = stage.folder / "lost"
    with stage.scoring(output) as server:
        process = stage.score(server, output)
        _wait_for_part(process, output)
        server.end(signal.SIGKILL)
        check_ends_in_a_line(process)
        stage.server(ports=server.ports)


@pytest.mark.parametrize("kind", ["server", "gateway"])
def test_a_process_told_to_stop_under_load_ends_in_time_without_a_wrong_answer(stage, kind):
    server, gateway, _ = stage.server_and_gateway()
    process = server if kind == "server" else gateway
    with load(process.ports, 4):
        status = process.end()
        time.sleep(0.5)
    assert status == 0, f"status {status}: {process.last_line}"


def test_scoring_told_to_stop_ends_at_once_and_goes_on(stage):
    output = stage.folder / "stopped"
    with stage.scoring(output) as server:
        process = stage.score(server, output)
        _wait_for_part(process, output)
        assert process.runs, "it ended before it was told to"
        process.end()
        assert "Traceback" not in process.log.read_text(), f"a traceback: {process.last_line}"


def test_a_clock_that_goes_back_changes_no_answer(stage):
    base = stage.folder / "m"
    export(base, 1)
    server, gateway, ports = stage.server_and_gateway(base, wrapper="tests.faults.clock")
    with load(ports) as counts:
        for process in (server, gateway):
            process.send(signal.SIGUSR1)
        counts.wait_for_more(60, "the load is answered afterwards")
        export(base, 2)
        wait_for(lambda: state_of(server, 2) == "AVAILABLE", "the new version is loaded")
    assert not counts.lost, f"{counts.lost} lost"
    assert answers(ports), "no answer at the end"
