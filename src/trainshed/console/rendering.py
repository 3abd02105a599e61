"""Templates become pages: every value is escaped, every word is in the visitor's language."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse

from trainshed.console.formatting import format_bytes, format_duration, format_moment, format_timestamp
from trainshed.console.language import LANGUAGES, catalog_of
from trainshed.console.sentences import sentences_of
from trainshed.console.words import WORDS

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["Renderer"]


class Renderer:
    """Makes pages from templates, one environment per language."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._environments: dict[str, Environment] = {}

    def page(self, template: str, language: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """A page or a part of one as an answer."""
        return HTMLResponse(self.text(template, language, **values), status_code=status)

    def text(self, template: str, language: str, **values: Any) -> str:
        """A page or a part of one as text."""
        environment = self._environments.get(language)
        if environment is None:
            # Two at once make two equal ones; the last stays.
            environment = self._environments[language] = self._make_environment(language)
        return environment.get_template(template).render(language=language, **values)

    def word(self, language: str, kind: str, word: str) -> str:
        """What the platform's word is called in a language; a word that is not known stays as it is."""
        message = WORDS[kind].get(word)
        return catalog_of(language).gettext(message) if message else word

    def _make_environment(self, language: str) -> Environment:
        # Imported with the first page: a platform that nobody looks at does not carry it.
        from jinja2 import Environment, PackageLoader, StrictUndefined

        environment = Environment(
            loader=PackageLoader("trainshed.console"),
            # All templates are HTML, whatever they are called.
            autoescape=True,
            undefined=StrictUndefined,
            extensions=["jinja2.ext.i18n"],
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.policies["ext.i18n.trimmed"] = True
        catalog = catalog_of(language)
        install: Any = environment
        install.install_gettext_callables(catalog.gettext, catalog.ngettext, newstyle=True)
        environment.filters.update(
            duration=format_duration,
            timestamp=format_timestamp,
            moment=format_moment,
            bytes=format_bytes,
            compact=_compact,
            told=sentences_of(language).translate,
        )
        environment.globals.update(
            languages=LANGUAGES,
            static=lambda name: f"/static/{name}?v={self._fingerprint}",
            word=lambda kind, word: self.word(language, kind, word),
        )
        return environment


def _compact(value: Any) -> str:
    """JSON for an attribute; the template escapes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
