"""A server of models on this machine that speaks the hub's routes: information on a model, and `resolve`."""

import contextlib
import hashlib
import http.server
import json
import re
import threading
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_INFO = re.compile(r"/api/models/(?P<name>[^/]+/[^/]+)(/revision/(?P<revision>.+))?")
_TREE = re.compile(r"/api/models/(?P<name>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)")
_RESOLVE = re.compile(r"/(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


class Hub(http.server.ThreadingHTTPServer):
    """Serves folders by their models' names. (The hub redirects large files; its library follows that by itself.)

    Attributes:
        folders: of models by name.
        statuses: of names that are not served, such as 401 for a gated one; of "name/" those of its files alone.
        requests: lines "METHOD path".
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folders: dict[str, Path] = {}
        self.statuses: dict[str, int] = {}
        self.requests: list[str] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def running():
    hub = Hub()
    threading.Thread(target=hub.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


def _entry(folder, path):
    content = path.read_bytes()
    entry = {"type": "file", "path": str(path.relative_to(folder)), "size": len(content)}
    return entry | {"oid": hashlib.sha1(content).hexdigest()}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append(f"{self.command} {self.path}")
        path = self.path.split("?")[0]
        found = _TREE.fullmatch(path) or _INFO.fullmatch(path) or _RESOLVE.fullmatch(self.path)
        if found is None:
            return self._refuse(404, "EntryNotFound")
        name, revision = found["name"], found["revision"] or "main"
        if status := self.server.statuses.get(
            f"{name}/" if found.re is _RESOLVE else name, self.server.statuses.get(name)
        ):
            return self._refuse(status, "GatedRepo" if status in (401, 403) else "")
        if name not in self.server.folders:
            return self._refuse(401 if "Authorization" not in self.headers else 404, "RepoNotFound")
        if revision not in ("main", "v1", COMMIT):
            return self._refuse(404, "RevisionNotFound")
        folder = self.server.folders[name]
        if found.re is _INFO:
            files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
            return self._send_json({"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]})
        if found.re is _TREE:
            return self._send_json([_entry(folder, path) for path in sorted(folder.rglob("*")) if path.is_file()])
        path = folder / found["file"]
        if not path.is_file():
            return self._refuse(404, "EntryNotFound")
        content = path.read_bytes()
        self._send(content, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'})

    do_HEAD = do_GET

    def _send_json(self, values):
        self._send(json.dumps(values).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status, code):
        headers = {"X-Error-Code": code, "X-Error-Message": f"no: {code}"}
        headers |= {"X-Repo-Commit": COMMIT} if code == "EntryNotFound" else {}
        self._send(b"{}", headers, status)

    def _send(self, content, headers, status=200):
        self.send_response(status)
        for header in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(*header)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)
