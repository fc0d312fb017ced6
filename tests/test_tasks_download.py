"""Downloads: taken up where they broke off, from the next place if need be, and verified."""

import dataclasses
import hashlib
import itertools
import logging
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lra.common.errors import DataError
from lra.tasks import retrieval
from lra.tasks.retrieval import Retrieval
from lra.tasks.sources import downloads
from lra.tasks.sources.downloads import Address, DownloadError, download
from lra.tasks.text import RELEASE as IMDB
from made_data import pairs

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
        self.files: dict[str, bytes] = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class HTTPServer(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client may leave early."""

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers["Range"]
        self.asked.append(wanted)
        if self.status or len(self.asked) > self.refuses_after:
            request.send_error(self.status or 503)
            return
        start = int((wanted or "").strip("bytes=-") or 0) if self.knows_ranges else 0
        body = self.files.get(request.path.rpartition("/")[2], self.content)[start:]
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
    release = dataclasses.replace(IMDB, addresses=(places,))
    with pytest.raises(DataError) as caught:
        release.get(tmp_path, "auto")
    told = str(caught.value)
    for part in (server.url, "404", nowhere, "refused", "resolve", "1,024,000", places.sha256):
        assert part in told
    assert len(server.asked) == 1, "a refusal is final"


def without_checksum(server: Server, size: int = len(CONTENT)) -> Address:
    return Address(urls=(server.url,), file_name="x.tar.gz", bytes=size)


def test_a_server_states_the_size_and_the_checksum_that_are_not_known(
    server: Server, other_server: Server, tmp_path: Path
) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    server.headers = {"X-Linked-ETag": f'"{digest}"', "Location": other_server.url}
    (tmp_path / "x.tar.gz.partial").write_bytes(CONTENT[:1000])
    about = without_checksum(server, 1_020_000)
    assert download(about, tmp_path / "x.tar.gz").read_bytes() == CONTENT
    assert other_server.asked == [None, "bytes=1000-"], "one answer for its headers alone"
    server.headers["X-Linked-ETag"] = f'"{digest[::-1]}"'
    with pytest.raises(DownloadError, match="checksum of 1,024,000 bytes is wrong"):
        download(about, tmp_path / "y.tar.gz")
    assert not list(tmp_path.glob("y.tar.gz*.partial"))
    server.headers = {}
    assert download(about, tmp_path / "z.tar.gz").read_bytes() == CONTENT, "it states none"


def test_another_size_is_refused_before_anything_is_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz.partial").write_bytes(CONTENT[:1000])
    with pytest.raises(DownloadError, match=r"got 1,024,000 bytes, expected about 1,040,000"):
        download(without_checksum(server, 1_040_000), tmp_path / "x.tar.gz")
    assert (tmp_path / "x.tar.gz.partial").read_bytes() == CONTENT[:1000]


@pytest.fixture
def papers(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server of small files of Retrieval, which count as the official ones."""
    server.files = pairs()
    folder = server.url.removesuffix("/x.tar.gz")
    addresses = tuple(
        Address(urls=(f"{folder}/{Path(one.file_name).name}",), file_name=one.file_name,
                bytes=len(server.files[Path(one.file_name).name]))
        for one in retrieval.RELEASE.addresses
    )  # fmt: skip
    release = dataclasses.replace(retrieval.RELEASE, addresses=addresses)
    monkeypatch.setattr(Retrieval, "release", release)
    sizes = {"train": 40, "val": 10, "test": 10}
    monkeypatch.setattr(retrieval, "OFFICIAL_COUNTS", sizes)
    return server


def test_retrieval_downloads_three_files_and_resumes(
    papers: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="lra.tasks")
    task = Retrieval(sequence_length=400, source="download")
    assert (
        task.plan(tmp_path / "no" / "folder").describe().startswith("download aan/new_aan_pairs.")
    )
    papers.refuses_after = 4  # two for each file: the first asks for its size
    with pytest.raises(
        DataError, match=r"503.* Run the same command again .*\.train\.tsv \(about 11\.2 KiB"
    ):
        task.prepare(tmp_path)
    done = {path.name for path in (tmp_path / "aan").glob("*.tsv")}
    assert done == {"new_aan_pairs.eval.tsv", "new_aan_pairs.test.tsv"}
    with pytest.raises(DataError, match=r"almost such a name: \S+eval\.tsv, \S+test\.tsv\. Run"):
        Retrieval(source="official").prepare(tmp_path)
    start = papers.files["new_aan_pairs.train.tsv"][:500]
    (tmp_path / "aan" / "new_aan_pairs.train.tsv.partial").write_bytes(start)
    papers.refuses_after = 10**9
    dataset = task.prepare(tmp_path)
    assert papers.asked[-2:] == [None, "bytes=500-"] and dataset.source == "official"
    for name, content in papers.files.items():
        assert (tmp_path / "aan" / name).read_bytes() == content
    said = [line for line in caplog.messages if line.startswith("retrieval: download aan/")]
    assert len(said) == 2 and "s at 100 Mbit/s; the disk has " in said[0]
    assert Retrieval(sequence_length=400).prepare(tmp_path).fingerprint == dataset.fingerprint


def test_what_is_downloaded_for_retrieval_is_checked(papers: Server, tmp_path: Path) -> None:
    name = "new_aan_pairs.eval.tsv"
    papers.files[name] = papers.files[name].replace(b"paper", b"pap\xc3\xa9", 1)
    with pytest.raises(DataError, match="characters beyond the printable ones of ASCII"):
        Retrieval(sequence_length=400, source="download").prepare(tmp_path)


def test_large_files_are_only_downloaded_if_asked_for_and_if_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"lra\.prepare --task retrieval --source download"):
        Retrieval().prepare(tmp_path)
    monkeypatch.setattr("lra.tasks.sources.releases.free_disk_bytes", lambda _: 9 * 10**9)
    with pytest.raises(
        DataError, match=r"cannot download .*\(9\.9 GiB\): the disk .* 8\.4 GiB left"
    ):
        Retrieval(source="download").prepare(tmp_path)
    partial = tmp_path / "aan" / "new_aan_pairs.train.tsv.partial"
    partial.parent.mkdir()
    with partial.open("wb") as file:
        file.truncate(2 * 10**9)
    said = Retrieval(source="download").plan(tmp_path).describe()
    assert "(8.0 GiB, 11 min at 100 Mbit/s; the disk has 8.4 GiB left)" in said, "the rest fits"
