"""The documentation: lines that fit, links that lead somewhere, and nothing that is left out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from everview.cli import main
from everview.stores.embedded.files import FORMAT
from tests.stores.test_contract_of_catalog import RECORDS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FORMATS = (ROOT / "docs/reference/formats.md").read_text()
COLUMNS = 100
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page with their numbers, without tables and blocks of code."""
    in_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|"):
            yield number, line


def anchors(page: Path) -> set[str]:
    """What links to headings of a page may say behind #."""
    titles = [line.lstrip("#").strip() for _, line in prose(page) if line.startswith("#")]
    return {
        "".join(c for c in title.lower().replace(" ", "-") if c in "-_" or c.isalnum())
        for title in titles
    }


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_prose_fits_into_100_columns(page: Path) -> None:
    assert [f"{named(page)}:{n}" for n, line in prose(page) if len(line) > COLUMNS] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_pages_lead_to_a_file_and_a_heading(page: Path) -> None:
    text = "\n".join(page.read_text().splitlines())
    for link in LINK.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)):
        if link.startswith(("http://", "https://")):
            continue
        file, _, heading = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{named(page)} links to {link}"
        assert not heading or heading in anchors(target), f"{named(page)} links to {link}"


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs/README.md"
    listed = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    assert {page for page in PAGES if page.is_relative_to(index.parent)} - {index} == listed


def test_every_command_is_described() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text()
    assert [name for name in main.commands if f"| `everview {name}" not in page] == []
    for name, command in main.commands.items():
        assert command.help is not None, name
        assert "Example:" in command.help, name


def test_the_page_of_formats_has_the_format_of_this_version() -> None:
    assert f"format **{FORMAT}**" in FORMATS
    assert f"`everview {FORMAT}`" in FORMATS


def test_the_page_of_formats_has_every_document_and_field() -> None:
    for key, record in RECORDS.items():
        kind = key.kind.prefix.removesuffix("/")
        assert re.search(rf"`document/{kind}/?`", FORMATS), kind
        for field in record.to_document():
            assert f"`{field}`" in FORMATS or kind == "constants", f"{field} of {key.text}"


def test_pages_have_no_invisible_characters() -> None:
    for page in PAGES:
        odd = {c for c in page.read_text() if unicodedata.category(c) in ("Cc", "Cf")} - {"\n"}
        assert not odd, named(page)
