"""Processes that are killed, told to stop, or whose clock goes back."""

import signal
import time

from scripts.faults.rows import row
from scripts.faults.stage import Stage, answers, check, export, load, wait_for


@row(
    "kill-server",
    "kill -9 of the server behind the gateway under load; started again",
    "503 with Retry-After, no hang; back by itself",
)
def kill_server(stage: Stage) -> str:
    server = stage.server()
    gateway = stage.gateway(f"127.0.0.1:{server.port}")
    with load(["gateway"] * 4, http=gateway.http) as counts:
        wait_for(lambda: counts.good > 20, "the load is answered")
        server.end(signal.SIGKILL)
        refused = counts.refused
        wait_for(lambda: counts.refused > refused + 4, "the gateway says that the server is gone")
        stage.server(ports=server.ports)
        good = counts.good
        wait_for(lambda: counts.good > good + 20, "the gateway answers again")
    return str(counts)


@row("kill-gateway", "kill -9 of the gateway under load; started again at the same port", "answers again at once")
def kill_gateway(stage: Stage) -> str:
    server = stage.server()
    gateway = stage.gateway(f"127.0.0.1:{server.port}")
    with load(["gateway"] * 4, http=gateway.http) as counts:
        wait_for(lambda: counts.good > 20, "the load is answered")
        gateway.end(signal.SIGKILL)
        stage.gateway(f"127.0.0.1:{server.port}", port=gateway.http)
        good = counts.good
        wait_for(lambda: counts.good > good + 20, "the gateway answers again")
    return str(counts)


@row("kill-scoring", "kill -9 of scoring at three moments; the same command again", "the bytes of an uninterrupted job")
def kill_scoring(stage: Stage) -> str:
    server = stage.server()
    whole = stage.scored(server, stage.folder / "whole")
    output = stage.folder / "killed"
    for _ in range(3):
        process, parts = stage.score(server, output), _parts(output)
        wait_for(lambda: _parts(output) > parts or not process.runs, "a part is written")  # noqa: B023
        check(process.runs, "it ended before it was killed")
        process.end(signal.SIGKILL)
    check(stage.scored(server, output) == whole, "the table differs")
    return f"{len(whole):,} bytes, equal"


def _parts(output) -> int:
    return len(list(output.glob(".parts/0*")))


@row(
    "scoring-loses-server",
    "kill -9 of the server of a scoring job; both again",
    "one line and a status; then the same bytes",
)
def scoring_loses_server(stage: Stage) -> str:
    server = stage.server()
    whole = stage.scored(server, stage.folder / "whole")
    output = stage.folder / "lost"
    process = stage.score(server, output)
    wait_for(lambda: _parts(output) > 0 or not process.runs, "a part is written")
    server.end(signal.SIGKILL)
    status, said = process.wait(), process.last_line
    check(status != 0 and "Traceback" not in process.log.read_text(), f"status {status}: {said}")
    again = stage.server(ports=server.ports)
    check(stage.scored(again, output) == whole, "the table differs")
    return f"status {status}: {said[:80]}"


@row(
    "sigterm-server",
    "SIGTERM of the server under load over gRPC and REST",
    "status 0 in time; no wrong answer, no hang",
)
def sigterm_server(stage: Stage) -> str:
    server = stage.server()
    with load(["grpc", "grpc", "rest", "rest"], port=server.port, rest=server.rest) as counts:
        wait_for(lambda: counts.good > 40, "the load is answered")
        status = server.end()
        time.sleep(0.5)
    check(status == 0, f"status {status}: {server.last_line}")
    return str(counts)


@row("sigterm-gateway", "SIGTERM of the gateway under load", "status 0 in time; no wrong answer, no hang")
def sigterm_gateway(stage: Stage) -> str:
    server = stage.server()
    gateway = stage.gateway(f"127.0.0.1:{server.port}")
    with load(["gateway"] * 4, http=gateway.http) as counts:
        wait_for(lambda: counts.good > 20, "the load is answered")
        status = gateway.end()
        time.sleep(0.5)
    check(status == 0, f"status {status}: {gateway.last_line}")
    return str(counts)


@row(
    "sigterm-scoring",
    "SIGTERM of scoring; the same command again",
    "ends at once; then the bytes of an uninterrupted job",
)
def sigterm_scoring(stage: Stage) -> str:
    server = stage.server()
    whole = stage.scored(server, stage.folder / "whole")
    output = stage.folder / "stopped"
    process = stage.score(server, output)
    wait_for(lambda: _parts(output) > 0 or not process.runs, "a part is written")
    check(process.runs, "it ended before it was told to")
    status = process.end()
    check("Traceback" not in process.log.read_text(), f"a traceback: {process.last_line}")
    check(stage.scored(server, output) == whole, "the table differs")
    return f"status {status}; {len(whole):,} bytes, equal"


@row(
    "clock-back",
    "the clock of server and gateway goes back by an hour under load",
    "all answered; a new version is loaded",
)
def clock_back(stage: Stage) -> str:
    base = stage.folder / "m"
    export(base, 1)
    server = stage.server(base=base, wrapper="scripts.faults.clock")
    gateway = stage.gateway(f"127.0.0.1:{server.port}", wrapper="scripts.faults.clock")
    ports = {"port": server.port, "rest": server.rest, "http": gateway.http}
    with load(["grpc", "rest", "gateway"], **ports) as counts:
        wait_for(lambda: counts.good > 30, "the load is answered")
        for process in (server, gateway):
            process.send(signal.SIGUSR1)
        good = counts.good
        wait_for(lambda: counts.good > good + 60, "the load is answered afterwards")
        export(base, 2)
        wait_for(lambda: _version(server) == 2, "the new version is loaded")
    check(not counts.lost, f"{counts.lost} lost")
    check(answers(**ports), "no answer at the end")
    return str(counts)


def _version(server) -> int:
    from serving.client import Client

    with Client(f"127.0.0.1:{server.port}", "m", timeout_s=10) as client:
        return max(one.version for one in client.status() if one.state == "AVAILABLE")
