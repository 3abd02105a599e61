"""English or Chinese: which one a visitor reads, and the catalog of messages for it."""

from __future__ import annotations

import gettext
from collections.abc import Sequence
from functools import cache
from pathlib import Path

__all__ = ["LANGUAGES", "LANGUAGE_COOKIE", "catalog_of", "choose_language"]

# Each language by its own name: whoever looks for it reads it.
LANGUAGES: dict[str, str] = {"en": "English", "zh": "中文"}
LANGUAGE_COOKIE = "trainshed_lang"

_FOLDER = Path(__file__).parent / "locale"


@cache
def catalog_of(language: str) -> gettext.NullTranslations:
    """The messages of a language. English needs no catalog: it is what the pages are written in."""
    if language == "en":
        return gettext.NullTranslations()
    with (_FOLDER / language / "LC_MESSAGES" / "console.mo").open("rb") as file:
        return gettext.GNUTranslations(file)


def choose_language(asked: str, remembered: str, accepted: str) -> str:
    """The language that was asked for in the address, else the one remembered, else the browser's first."""
    for choice in (asked, remembered):
        if choice in LANGUAGES:
            return choice
    return _first_known(_by_preference(accepted))


def _by_preference(header: str) -> list[str]:
    """The languages of an Accept-Language header, the most wanted first."""
    weighed: list[tuple[float, int, str]] = []
    for place, part in enumerate(header[:500].split(",")):
        tag, _, weight = part.partition(";")
        try:
            wanted = float(weight.strip().removeprefix("q=")) if weight else 1.0
        except ValueError:
            continue
        if wanted > 0:
            weighed.append((-wanted, place, tag.strip().lower()))
    return [tag for _, _, tag in sorted(weighed)]


def _first_known(tags: Sequence[str]) -> str:
    known = (tag.partition("-")[0] for tag in tags)
    return next((language for language in known if language in LANGUAGES), "en")
