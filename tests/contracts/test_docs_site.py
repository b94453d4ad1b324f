"""The site of the documentation: it builds, and no link in it leads nowhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")

CHECKOUT = Path(__file__).resolve().parents[2]


def build(checkout: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(checkout / "mkdocs.yml"),
         "-d", str(site)],
        cwd=site.parent, capture_output=True, text=True,
    )  # fmt: skip


def test_it_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    run = build(CHECKOUT, tmp_path / "site")
    assert run.returncode == 0, run.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    written = list((CHECKOUT / "docs").rglob("*.md"))
    # One page is the generator's own: what was not found.
    assert len(pages) == len(written) + 1
    for page in pages:
        text = page.read_text()
        assert 'src="http' not in text and 'rel="stylesheet" href="http' not in text, page


@pytest.mark.parametrize("link", ["nowhere.md", "checking.md#nothing-of-the-kind", "../README.md"])
def test_a_link_to_nowhere_ends_the_build(link: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(CHECKOUT / "docs", copy / "docs")
    shutil.copy(CHECKOUT / "mkdocs.yml", copy)
    with (copy / "docs" / "report.md").open("a") as page:
        page.write(f"\n[there]({link})\n")
    run = build(copy, tmp_path / "site")
    assert run.returncode != 0
    assert link.partition("#")[2] or link in run.stderr


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_what_lies_beside_the_site_links_to_what_is_there(page: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", (CHECKOUT / page).read_text())
    here = [link for link in links if not link.startswith("http")]
    assert [link for link in here if not (CHECKOUT / link).exists()] == []
