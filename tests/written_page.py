"""The page of a report, as its script shows it."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path


def read_page(page: Path) -> str:
    """Return the HTML of a page with everything unpacked: its figures and its list of runs."""

    def unpack(packed: re.Match[str]) -> str:
        return ">" + zlib.decompress(base64.b64decode(packed[1])).decode()

    return re.sub(r' data-zlib="([^"]*)">', unpack, page.read_text())
