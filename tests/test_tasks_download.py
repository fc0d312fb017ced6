"""Downloads: taken up where they broke off, from the next place if need be, and verified."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from common.errors import DataError
from tasks.image.task import RELEASE as CIFAR
from tasks.lm.corpora import CORPORA
from tasks.sources import downloads
from tasks.sources.downloads import Address, DownloadError, download
from tasks.sources.releases import Release
from tasks.text import RELEASE as IMDB

CONTENT = bytes(range(256)) * 4000


class Server:
    """Serves CONTENT, and misbehaves as told."""

    def __init__(self) -> None:
        self.knows_ranges = True
        self.tells_length = True
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
        Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers["Range"]
        self.asked.append(wanted)
        if self.status or len(self.asked) > self.refuses_after:
            request.send_error(self.status or 503)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if self.knows_ranges else 0
        body = self.content[start:]
        request.send_response(206 if start else 200)
        if self.tells_length:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.break_off_after])
        request.close_connection = True

    @property
    def url(self) -> str:
        host, port = self.http.server_address[:2]
        return f"http://{host!s}:{port}/x.tar.gz"

    @property
    def address(self) -> Address:
        return address(self.url)


def address(*urls: str) -> Address:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return Address(urls=urls, file_name="x.tar.gz", bytes=len(CONTENT), sha256=digest)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSES", (0, 0))


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


other_server = server
"""A second place."""


def test_a_file_comes_whole(server: Server, tmp_path: Path) -> None:
    path = download(server.address, tmp_path / "deep" / "x.tar.gz")
    assert path.read_bytes() == CONTENT
    assert not list(tmp_path.rglob("*.partial"))
    server.status = 500
    assert download(server.address, path) == path, "what is there is not asked for"


def test_a_broken_download_is_resumed(server: Server, tmp_path: Path) -> None:
    server.break_off_after = 300_000
    path = download(server.address, tmp_path / "x.tar.gz")
    assert path.read_bytes() == CONTENT
    starts = [int((asked or "").strip("bytes=-")) for asked in server.asked]
    assert len(starts) == 4 and all(b - a > 200_000 for a, b in itertools.pairwise(starts))


def test_a_download_goes_on_as_long_as_each_connection_brings_bytes(
    server: Server, tmp_path: Path
) -> None:
    server.break_off_after = 40_000
    assert download(server.address, tmp_path / "x.tar.gz").read_bytes() == CONTENT
    assert len(server.asked) > 25


def test_the_next_place_sends_the_rest(
    server: Server, other_server: Server, tmp_path: Path
) -> None:
    server.break_off_after, server.refuses_after = 300_000, 1
    both = address(server.url, other_server.url)
    assert download(both, tmp_path / "x.tar.gz").read_bytes() == CONTENT
    assert len(server.asked) == 4, "asked again after a pause, twice"
    assert int((other_server.asked[0] or "").strip("bytes=-")) > 200_000


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_page_in_place_of_the_file_does_not_harm_the_part(
    server: Server, other_server: Server, tmp_path: Path, tells_length: bool
) -> None:
    server.knows_ranges, server.content = False, b"<html>moved</html>"
    server.tells_length = tells_length
    (tmp_path / "x.tar.gz.partial").write_bytes(CONTENT[:1000])
    both = address(server.url, other_server.url)
    assert download(both, tmp_path / "x.tar.gz").read_bytes() == CONTENT
    assert other_server.asked == ["bytes=1000-"]


def test_the_last_error_names_every_place_and_the_other_way(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = 404
    nowhere = "http://127.0.0.1:9/x.tar.gz"
    places = address(server.url, nowhere)
    release = dataclasses.replace(IMDB, address=places)
    (tmp_path / "IMDB Dataset.csv").touch()
    with pytest.raises(DataError) as caught:
        release.get(tmp_path, "auto")
    told = str(caught.value)
    for part in (server.url, "404", nowhere, "refused", "1,024,000 bytes", places.sha256):
        assert part in told
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    unread = "IMDB Dataset.csv was not read: a single table does not say"
    assert unread in caplog.text
    with pytest.raises(DataError, match=unread):
        release.get(tmp_path, "official")


def test_a_later_call_goes_on(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz.partial").write_bytes(CONTENT[:1000])
    assert download(server.address, tmp_path / "x.tar.gz").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    server.knows_ranges = False
    (tmp_path / "x.tar.gz.partial").write_bytes(b"wrong start")
    assert download(server.address, tmp_path / "x.tar.gz").read_bytes() == CONTENT


def test_wrong_content_never_gets_the_name(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(DownloadError, match="checksum"):
        download(server.address, tmp_path / "x.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] in ([], ["x.tar.gz.lock"])


@pytest.mark.parametrize("change", [b"", b"more" * 10**6])
def test_wrong_sizes_are_named(server: Server, tmp_path: Path, change: bytes) -> None:
    server.content = CONTENT + change if change else CONTENT[:5000]
    with pytest.raises(DownloadError, match=r"got [\d,]+ bytes, expected 1,024,000"):
        download(server.address, tmp_path / "x.tar.gz")


def test_a_refusal_is_named(server: Server, tmp_path: Path) -> None:
    server.status = 403
    with pytest.raises(DownloadError, match="403"):
        download(server.address, tmp_path / "x.tar.gz")
    assert len(server.asked) == 1


@pytest.mark.parametrize("host", ["127.0.0.1:9", "no-such-host.invalid"])
def test_no_network_fails_quickly(tmp_path: Path, host: str) -> None:
    start = time.monotonic()
    with pytest.raises(DownloadError, match=r"refused|[Nn]ame"):
        download(address(f"http://{host}/x"), tmp_path / "x")
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("name", "known"),
    [("imdb_reviews", IMDB), ("tiny_shakespeare", CORPORA["shakespeare"].release)],
)
def test_addresses_have_the_files_that_tensorflow_datasets_registers(
    name: str, known: Release
) -> None:
    library = pytest.importorskip("tensorflow_datasets")
    ((_, facts),) = library.builder_cls(name).url_infos.items()
    assert known.address is not None
    assert (known.address.bytes, known.address.sha256) == (int(facts.size), facts.checksum)


def test_no_address_is_the_slow_host_alone() -> None:
    for release in (IMDB, CIFAR):
        assert release.address is not None
        assert len({urlsplit(url).hostname for url in release.address.urls}) == 2
