"""Downloads: taken up where they broke off, from the next place if need be, and verified."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lra.common.errors import DataError
from lra.tasks.sources import downloads
from lra.tasks.sources.downloads import Address, DownloadError, download
from lra.tasks.text import RELEASE as IMDB

CONTENT = bytes(range(256)) * 4000


class Server:
    """Serves CONTENT, and misbehaves as told."""

    def __init__(self) -> None:
        self.knows_ranges = self.tells_length = True
        self.headers: dict[str, str] = {}
        self.break_off_after: int | None = None
        self.status = 0
        self.refuses_after = 10**9
        self.asked: list[str | None] = []
        self.content = CONTENT
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers["Range"]
        self.asked.append(wanted)
        if self.status or len(self.asked) > self.refuses_after:
            request.send_error(self.status or 503)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if self.knows_ranges else 0
        body = self.content[start:]
        request.send_response(302 if "Location" in self.headers else 206 if start else 200)
        for name, value in self.headers.items():
            request.send_header(name, value)
        if self.tells_length:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.break_off_after])
        request.close_connection = True

    @property
    def url(self) -> str:
        host, port = self.http.server_address[:2]
        return f"http://{host!s}:{port}/x.tar.gz"


def address(*places: Server | str) -> Address:
    urls = tuple(place.url if isinstance(place, Server) else place for place in places)
    digest = hashlib.sha256(CONTENT).hexdigest()
    return Address(urls=urls, file_name="x.tar.gz", bytes=len(CONTENT), sha256=digest)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "BACKOFF", 0)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


other_server = server
"""A second place."""


def test_a_file_comes_whole_and_once(server: Server, tmp_path: Path) -> None:
    path = download(address(server), tmp_path / "deep" / "x.tar.gz")
    assert path.read_bytes() == CONTENT and not list(tmp_path.rglob("*.partial"))
    assert download(address(server), path) == path and len(server.asked) == 1


def test_a_broken_download_goes_on_as_long_as_bytes_come(server: Server, tmp_path: Path) -> None:
    server.break_off_after = 300_000
    assert download(address(server), tmp_path / "x.tar.gz").read_bytes() == CONTENT
    starts = [int((asked or "").strip("bytes=-")) for asked in server.asked]
    assert starts[0] == 0 and all(a < b for a, b in itertools.pairwise(starts))


def test_a_later_call_goes_on_and_the_next_place_sends_the_rest(
    server: Server, other_server: Server, tmp_path: Path
) -> None:
    (tmp_path / "x.tar.gz.partial").write_bytes(CONTENT[:1000])
    server.break_off_after, server.refuses_after = 300_000, 1
    both = address(server, other_server)
    assert download(both, tmp_path / "x.tar.gz").read_bytes() == CONTENT
    assert server.asked[0] == "bytes=1000-" and len(server.asked) > 2, "asked again"
    assert int((other_server.asked[0] or "").strip("bytes=-")) > 200_000


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_page_in_place_of_the_file_does_not_harm_the_part(
    server: Server, other_server: Server, tmp_path: Path, tells_length: bool
) -> None:
    server.knows_ranges, server.content = False, b"<html>moved</html>"
    server.tells_length = tells_length
    (tmp_path / "x.tar.gz.partial").write_bytes(CONTENT[:1000])
    download(address(server, other_server), tmp_path / "x.tar.gz")
    assert other_server.asked == ["bytes=1000-"]


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"?", CONTENT + b"more"])
def test_wrong_content_never_gets_the_name(
    server: Server, other_server: Server, tmp_path: Path, content: bytes
) -> None:
    server.content = content
    with pytest.raises(DownloadError, match=r"checksum|got [\d,]+ bytes, expected 1,024,000"):
        download(address(server), tmp_path / "x.tar.gz")
    assert not (tmp_path / "x.tar.gz").exists()
    download(address(server, other_server), tmp_path / "x.tar.gz")


@pytest.mark.parametrize(
    ("name", "value"),
    [("Content-Length", "9" * 5000), ("Location", "http://[x"),
     ("Location", "http://a." + "a" * 99), ("Location", "file:///etc/passwd"),
     ("Content-Encoding", "gzip")],
)  # fmt: skip
def test_the_next_place_is_tried_whatever_a_place_answers(
    server: Server, other_server: Server, tmp_path: Path, name: str, value: str
) -> None:
    server.headers, server.tells_length = {name: value}, False
    both = address(server, other_server)
    assert download(both, tmp_path / "x.tar.gz").read_bytes() == CONTENT and server.asked


@pytest.mark.parametrize("size", [1000, 2 * len(CONTENT)])
def test_a_part_with_a_wrong_start_is_downloaded_again(
    server: Server, other_server: Server, tmp_path: Path, size: int
) -> None:
    (tmp_path / "x.tar.gz.partial").write_bytes(b"?" * size)
    server.status = 404
    both = address(server, other_server)
    assert download(both, tmp_path / "x.tar.gz").read_bytes() == CONTENT
    assert other_server.asked[-1] == "bytes=0-"


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_no_link_or_pipe_is_written_to(server: Server, tmp_path: Path, kind: str) -> None:
    elsewhere, partial = tmp_path / "elsewhere", tmp_path / "data" / "x.tar.gz.partial"
    partial.parent.mkdir()
    if kind == "link":
        elsewhere.write_bytes(CONTENT[:1000])
    os.mkfifo(partial) if kind == "pipe" else partial.symlink_to(elsewhere)
    path = download(address(server), partial.with_suffix(""))
    assert path.read_bytes() == CONTENT and not path.is_symlink()
    assert (elsewhere.read_bytes() == CONTENT[:1000]) if kind == "link" else not elsewhere.exists()


def test_the_last_error_names_every_place_and_the_other_way(server: Server, tmp_path: Path) -> None:
    server.status = 404
    nowhere = "http://127.0.0.1:9/x.tar.gz"
    places = address(server, nowhere, "http://no-such-host.invalid/x")
    release = dataclasses.replace(IMDB, address=places)
    with pytest.raises(DataError) as caught:
        release.get(tmp_path, "auto")
    told = str(caught.value)
    for part in (server.url, "404", nowhere, "refused", "resolve", "1,024,000", places.sha256):
        assert part in told
    assert len(server.asked) == 1, "a refusal is final"
