"""The server of the road is ours, or there is none."""

import socket

import pytest

from scripts.server import check_port, free_port, running_server
from tfrecords.base.errors import UserError


def test_a_port_in_use_is_refused_before_a_server_starts(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port={port} cannot be used"), running_server({}, tmp_path, port):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_free_port_is_free():
    check_port(free_port())
