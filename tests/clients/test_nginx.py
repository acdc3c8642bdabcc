"""The gateway behind nginx under a prefix, in the forms that its administrators write: handed on, or taken off."""

import re
import shutil
import subprocess

import httpx
import pytest

from serving.gateway.routes.table import ROUTES
from tests.clients.conftest import MODELS
from tests.servers import free_port, running_gateway
from tests.serving.gateway.conftest import wait_until_healthy

pytestmark = [pytest.mark.slow("clients"), pytest.mark.timeout(600)]
# `location` and `proxy_pass`: nginx puts what is after the location's path behind that of the address.
CONFIG = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off; gzip on; gzip_types application/json; gzip_proxied any; gzip_min_length 100; client_max_body_size 8m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream gateway {{ server {gateway}; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    location /models {{ proxy_pass http://gateway; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    location /models/old/ {{ proxy_pass http://gateway/models/; }}
    location /bare/ {{ proxy_pass http://gateway/; proxy_set_header Host $host; }}
  }}
}}
"""


@pytest.fixture(scope="module")
def proxied(servers, tmp_path_factory):
    """An HTTP client of nginx, in front of a gateway with --root_path=/models."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("there is no nginx")
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    with running_gateway(servers.server, ",".join(MODELS), folder, free_port(), "--root_path=/models") as url:
        file = folder / "nginx.conf"
        gateway = url.removeprefix("http://")
        file.write_text(CONFIG.format(folder=folder, port=port, gateway=gateway))
        command = [nginx, "-p", str(folder), "-c", str(file), "-e", str(folder / "error.log")]
        process = subprocess.Popen(command)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                wait_until_healthy(f"{http.base_url}/models")
                yield http
        finally:
            process.terminate()
            process.wait(timeout=15)


@pytest.mark.parametrize("prefix", ["/models", "/models/old", "/bare"])
@pytest.mark.parametrize("end", ["", "/"])
def test_every_route_is_answered_under_the_prefix(proxied, prefix, end):
    answers = {
        route.path: proxied.post(prefix + (route.path.rstrip("/") + end or "/"), json=route.example) for route in ROUTES
    }
    unknown = {path: answer.text for path, answer in answers.items() if answer.status_code != 200}
    assert not any("no such route" in text for text in unknown.values())


@pytest.mark.parametrize("address", ["/models", "/models/", "/models/old/", "/bare", "/bare/"])
def test_the_page_asks_under_the_prefix_in_a_browser(proxied, address, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--virtual-time-budget=10000", "--dump-dom", str(proxied.base_url.copy_with(path=address))]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    # The names come from /info, which the script asks.
    assert all(f">{name}<" in drawn for name in MODELS), drawn[-2000:]
    (link,) = re.findall(r'<a href="([^"]+)">API', drawn)
    # As a browser finds it: from where the page was after nginx's redirects.
    page = proxied.get(address, follow_redirects=True).url
    found = proxied.get(page.join(link))
    assert found.status_code == 200 and "openapi.json" in found.text
