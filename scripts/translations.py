"""Bring the console's catalogs up to date: collect the messages of its pages, merge, compile.

python scripts/translations.py            after a change of a template: new messages appear in the .po file
python scripts/translations.py --check    whether .po and .mo fit the pages; nothing is written
"""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

CONSOLE = Path(__file__).resolve().parent.parent / "src" / "trainshed" / "console"
LANGUAGES = ("zh",)


def collect() -> Catalog:
    """All messages of the templates and of the words that pages look up."""
    catalog = Catalog(project="Trainshed", charset="utf-8")
    methods = [("templates/**.html", "jinja2"), ("**.py", "python")]
    for name, _, message, _, context in extract_from_dir(
        CONSOLE, methods, {"**.html": {"newstyle_gettext": "true", "trimmed": "true"}}
    ):
        catalog.add(message, locations=[(name, 0)], context=context)
    return catalog


def po_path(language: str) -> Path:
    """Where a language's messages are written by people."""
    return CONSOLE / "locale" / language / "LC_MESSAGES" / "console.po"


def read_catalog(language: str) -> Catalog:
    """A language's messages, merged with those of the pages."""
    path = po_path(language)
    catalog = read_po(io.BytesIO(path.read_bytes()), locale=language) if path.exists() else Catalog(language)
    catalog.update(collect(), no_fuzzy_matching=True)
    catalog.obsolete.clear()
    return catalog


def as_po(catalog: Catalog) -> bytes:
    """The catalog as people edit it; without dates and line numbers, so that it changes only with its words."""
    buffer = io.BytesIO()
    write_po(buffer, catalog, width=110, omit_header=True, include_lineno=False, sort_output=True)
    return b'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n\n' + buffer.getvalue()


def as_mo(catalog: Catalog) -> bytes:
    """The catalog as the console reads it; with fixed dates, so that it changes only with its words."""
    fixed = datetime(2000, 1, 1, tzinfo=UTC)
    fresh = Catalog(
        catalog.locale, project="Trainshed", charset="utf-8", creation_date=fixed, revision_date=fixed
    )
    for message in catalog:
        if message.id and message.string:
            fresh.add(message.id, message.string)
    buffer = io.BytesIO()
    write_mo(buffer, fresh)
    return buffer.getvalue()


def main() -> int:
    """Update the files, or check them."""
    stale: list[str] = []
    for language in LANGUAGES:
        catalog = read_catalog(language)
        missing = [str(message.id) for message in catalog if message.id and not message.string]
        for message in missing:
            sys.stderr.write(f"{language}: not translated: {message}\n")
        files = {po_path(language): as_po(catalog), po_path(language).with_suffix(".mo"): as_mo(catalog)}
        for path, content in files.items():
            if "--check" in sys.argv:
                if not path.exists() or path.read_bytes() != content:
                    stale.append(str(path.relative_to(CONSOLE)))
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    for name in stale:
        sys.stderr.write(f"{name} does not fit the pages; run python scripts/translations.py\n")
    return 1 if stale or ("--check" in sys.argv and missing) else 0


if __name__ == "__main__":
    raise SystemExit(main())
