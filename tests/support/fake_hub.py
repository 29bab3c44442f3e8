"""A small hub on the loopback interface: repositories in memory, ranges, and every way to fail that a test asks for.

Owns the two conversations that models.hub has (a repository's listing, a file's bytes).  Does not know models.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(kw_only=True)
class FakeFile:
    """A file and how it is served.

    published_sha256: what the listing says (None: the file is not in LFS).  break_after: how many bytes each of the
    next answers sends before the connection is cut.  redirect_to: the base address that requests are sent on to.
    pace: after every so many bytes nothing comes for so many seconds.
    """

    content: bytes
    published_sha256: str | None
    break_after: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)  # the next answers are these, without content
    ignores_ranges: bool = False
    redirect_to: str | None = None
    pace: tuple[int, float] | None = None


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """What a client asked for."""

    path: str
    range: str | None
    authorization: str | None


class FakeHub:
    """The state of the server; tests change it and read `requests` back."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, FakeFile]] = {}
        self.gated: set[str] = set()
        self.required_token: str | None = None
        self.requests: list[SeenRequest] = []
        self.searches: list[dict[str, list[str]]] = []
        self.search_status = 200
        self.extras: dict[str, dict[str, object]] = {}  # by repository: what a search tells of it beside its name
        self.address = ""

    def add(self, repository: str, name: str, content: bytes) -> FakeFile:
        """Put a file, in LFS and served faithfully until the test changes it."""
        file = FakeFile(content=content, published_sha256=hashlib.sha256(content).hexdigest())
        self.repositories.setdefault(repository, {})[name] = file
        return file

    def ranges_asked(self) -> list[str | None]:
        """The Range header of every request for a file's bytes."""
        return [request.range for request in self.requests if "/resolve/" in request.path]


@contextmanager
def serve_hub(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve until the end of the block; hub.address is what HF_ENDPOINT wants."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(
            SeenRequest(path=path, range=self.headers.get("Range"), authorization=self.headers.get("Authorization"))
        )
        if path == "/api/models":
            self._search(parse_qs(urlsplit(self.path).query))
        elif listing := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/]+)?", path):
            self._listing(listing[1])
        elif resolve := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(resolve[1], resolve[2], resolve[3])
        else:
            self._refuse(404)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: tests read `hub.requests`."""

    def _search(self, query: dict[str, list[str]]) -> None:
        self.hub.searches.append(query)
        if self.hub.search_status != 200:
            return self._refuse(self.hub.search_status)
        found = [name for name in self.hub.repositories if query["search"][0].lower() in name.lower()]
        self._send_json([{"id": name, **self.hub.extras.get(name, {})} for name in found])

    def _listing(self, repository: str) -> None:
        if not self._may_read():
            return self._refuse(401, "RepoNotFound")
        if repository in self.hub.gated:
            return self._refuse(403, "GatedRepo")
        files = self.hub.repositories.get(repository)
        if files is None:
            return self._refuse(401, "RepoNotFound")
        siblings = [_sibling(name, file) for name, file in files.items()]
        self._send_json({"id": repository, "modelId": repository, "sha": COMMIT, "siblings": siblings})

    def _send_json(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, repository: str, revision: str, name: str) -> None:
        file = self.hub.repositories.get(repository, {}).get(name)
        if not self._may_read():
            return self._refuse(401, "RepoNotFound")
        if file is None or revision != COMMIT:
            return self._refuse(404, "EntryNotFound")
        if file.statuses:
            return self._refuse(file.statuses.pop(0))
        if file.redirect_to is not None:
            self.send_response(302)
            self.send_header("Location", file.redirect_to + self.path)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self._send(file)

    def _send(self, file: FakeFile) -> None:
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked and not file.ignores_ranges:
            start = int(asked[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(file.content) - 1}/{len(file.content)}")
        else:
            self.send_response(200)
        body = file.content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if file.break_after:
            self.wfile.write(body[: file.break_after.pop(0)])
            self.close_connection = True
        elif file.pace:
            count, pause_s = file.pace
            for start in range(0, len(body), count):
                self.wfile.write(body[start : start + count])
                time.sleep(pause_s)
        else:
            self.wfile.write(body)

    def _may_read(self) -> bool:
        token = self.hub.required_token
        return token is None or self.headers.get("Authorization") == f"Bearer {token}"

    def _refuse(self, status: int, code: str | None = None) -> None:
        self.send_response(status)
        if code is not None:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _sibling(name: str, file: FakeFile) -> dict[str, object]:
    size = len(file.content)
    sibling: dict[str, object] = {"rfilename": name, "size": size, "blobId": "0" * 40}
    if file.published_sha256 is not None:
        sibling["lfs"] = {"sha256": file.published_sha256, "size": size, "pointerSize": 134}
    return sibling
