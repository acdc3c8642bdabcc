"""Processes that are killed, told to stop, or whose clock goes back."""

import signal
import time
from pathlib import Path

from scripts.faults.rows import row
from scripts.faults.stage import Process, Stage, answers, check, ends_in_a_line, export, load, state_of, wait_for


@row(
    "kill-server",
    "kill -9 of the server behind the gateway under load; started again",
    "503 with Retry-After, no hang; back by itself",
)
def kill_server(stage: Stage) -> str:
    server, gateway, _ = stage.server_and_gateway()
    with load(gateway.ports, 4) as counts:
        counts.wait_for_more(20, "the load is answered")
        server.end(signal.SIGKILL)
        refused = counts.refused
        wait_for(lambda: counts.refused > refused + 4, "the gateway says that the server is gone")
        stage.server(ports=server.ports)
        counts.wait_for_more(20, "the gateway answers again")
    return str(counts)


@row("kill-gateway", "kill -9 of the gateway under load; started again at the same port", "answers again at once")
def kill_gateway(stage: Stage) -> str:
    server, gateway, _ = stage.server_and_gateway()
    with load(gateway.ports, 4) as counts:
        counts.wait_for_more(20, "the load is answered")
        gateway.end(signal.SIGKILL)
        stage.gateway(server.target, port=gateway.http)
        counts.wait_for_more(20, "the gateway answers again")
    return str(counts)


@row("kill-scoring", "kill -9 of scoring at three moments; the same command again", "the bytes of an uninterrupted job")
def kill_scoring(stage: Stage) -> str:
    output = stage.folder / "killed"
    with stage.scoring(output) as server:
        for _ in range(3):
            process = stage.score(server, output)
            _wait_for_part(process, output)
            check(process.runs, "it ended before it was killed")
            process.end(signal.SIGKILL)
    return "the same bytes"


def _wait_for_part(process: Process, output: Path) -> None:
    """Waits until scoring has written another part, or has ended."""

    def parts() -> int:
        return len(list(output.glob(".parts/0*")))

    before = parts()
    wait_for(lambda: parts() > before or not process.runs, "a part is written")


@row(
    "scoring-loses-server",
    "kill -9 of the server of a scoring job; both again",
    "one line and a status; then the same bytes",
)
def scoring_loses_server(stage: Stage) -> str:
    output = stage.folder / "lost"
    with stage.scoring(output) as server:
        process = stage.score(server, output)
        _wait_for_part(process, output)
        server.end(signal.SIGKILL)
        said = ends_in_a_line(process)
        stage.server(ports=server.ports)
    return said


@row(
    "sigterm-server",
    "SIGTERM of the server under load over gRPC and REST",
    "status 0 in time; no wrong answer, no hang",
)
def sigterm_server(stage: Stage) -> str:
    server = stage.server()
    with load(server.ports, 2) as counts:
        counts.wait_for_more(40, "the load is answered")
        status = server.end()
        time.sleep(0.5)
    check(status == 0, f"status {status}: {server.last_line}")
    return str(counts)


@row("sigterm-gateway", "SIGTERM of the gateway under load", "status 0 in time; no wrong answer, no hang")
def sigterm_gateway(stage: Stage) -> str:
    _, gateway, _ = stage.server_and_gateway()
    with load(gateway.ports, 4) as counts:
        counts.wait_for_more(20, "the load is answered")
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
    output = stage.folder / "stopped"
    with stage.scoring(output) as server:
        process = stage.score(server, output)
        _wait_for_part(process, output)
        check(process.runs, "it ended before it was told to")
        status = process.end()
        check("Traceback" not in process.log.read_text(), f"a traceback: {process.last_line}")
    return f"status {status}; the same bytes"


@row(
    "clock-back",
    "the clock of server and gateway goes back by an hour under load",
    "all answered; a new version is loaded",
)
def clock_back(stage: Stage) -> str:
    base = stage.folder / "m"
    export(base, 1)
    server, gateway, ports = stage.server_and_gateway(base, wrapper="scripts.faults.clock")
    with load(ports) as counts:
        counts.wait_for_more(30, "the load is answered")
        for process in (server, gateway):
            process.send(signal.SIGUSR1)
        counts.wait_for_more(60, "the load is answered afterwards")
        export(base, 2)
        wait_for(lambda: state_of(server, 2) == "AVAILABLE", "the new version is loaded")
    check(not counts.lost, f"{counts.lost} lost")
    check(answers(ports), "no answer at the end")
    return str(counts)
