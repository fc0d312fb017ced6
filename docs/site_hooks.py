"""Make the site of the repository's own pages: hooks that mkdocs.yml names."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from posixpath import dirname, join, normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
REPORT = "results/report/index.html"
FILES = ("*.md", "*/README.md", "docs/**/*.*", "results/*.csv", "results/**/*.svg")
"""Pages of the site, and files that they show or link to, at their paths in the repository."""
_ROW = re.compile(r"^\| \[(.+)\]\((.+\.md)\) \|", re.MULTILINE)
"""A row of the table in docs/README.md: the title and the file of a page."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?!\w+:)[^)#\s]+)(?:#[^)]*)?\)")
"""A link to a file: its text, and the path."""


def on_config(config: MkDocsConfig) -> None:
    """Order the pages like the table in docs/README.md."""
    _, *parts = (ROOT / "docs" / "README.md").read_text(encoding="utf-8").split("\n| **")
    start = {"Overview": "README.md", "All results": REPORT}
    sections = {
        part.partition("**")[0]: [{t: normpath(f"docs/{file}")} for t, file in _ROW.findall(part)]
        for part in parts
    }
    config.nav = start | sections | {"Contributing": "CONTRIBUTING.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the files of the theme, those of the repository and the report's page."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--results-dir", "results/shipped", "--format", "html", "--out", folder]
        command = [sys.executable, "report.py", *options]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        report = Path(folder, "index.html").read_text(encoding="utf-8")
    paths = {path.relative_to(ROOT).as_posix() for name in FILES for path in ROOT.glob(name)}
    return Files([
        *(file for file in files if file.src_dir != config.docs_dir),
        *(File(path, str(ROOT), config.site_dir, use_directory_urls=True) for path in paths),
        File.generated(config, REPORT, content=report),
    ])  # fmt: skip


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to source files at the repository; without its address they become text."""

    def point(link: re.Match[str]) -> str:
        path = normpath(join(dirname(page.file.src_uri), link[2]))
        if files.get_file_from_path(path) or not (ROOT / path).exists():
            return link[0]
        return f"[{link[1]}]({config.repo_url}/blob/HEAD/{path})" if config.repo_url else link[1]

    return _LINK.sub(point, markdown)
