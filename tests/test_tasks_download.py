"""Downloads: taken up where they broke off, verified, and quick to fail."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tasks.sources.downloads import Address, DownloadError, download, look_up_address

CONTENT = bytes(range(256)) * 4000


class Server:
    """Serves CONTENT, and misbehaves as told."""

    def __init__(self) -> None:
        self.knows_ranges = True
        self.break_off_after: int | None = None
        self.status = 0
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
        if self.status:
            request.send_error(self.status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if self.knows_ranges else 0
        body = self.content[start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.break_off_after])
        request.close_connection = True

    @property
    def address(self) -> Address:
        host, port = self.http.server_address[:2]
        digest = hashlib.sha256(CONTENT).hexdigest()
        return Address(f"http://{host!s}:{port}/x.tar.gz", "x.tar.gz", len(CONTENT), digest)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


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
        download(Address(f"http://{host}/x", "x", 10, "0"), tmp_path / "x")
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("dataset", "file", "size"),
    [
        ("imdb_reviews", "aclImdb_v1.tar.gz", 84_125_825),
        ("cifar10", "cifar-10-binary.tar.gz", 170_052_171),
    ],
)
def test_addresses_are_those_that_tensorflow_datasets_registers(
    dataset: str, file: str, size: int
) -> None:
    address = look_up_address(dataset)
    assert (address.file_name, address.bytes) == (file, size)
    assert address.url.startswith(("http://", "https://")) and len(address.sha256) == 64
