"""Bring the console's catalogs up to date: collect the messages of its pages, merge, compile.

python scripts/translations.py            after a change of a template: new messages appear in the .po file
python scripts/translations.py --check    whether .po and .mo fit the pages; nothing is written

Sentences that the platform writes about jobs are in sentences.json, by their English template; new ones appear there
without a translation.
"""

from __future__ import annotations

import ast
import io
import itertools
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

CONSOLE = Path(__file__).resolve().parent.parent / "src" / "trainshed" / "console"
LANGUAGES = ("zh",)
# The modules whose sentences a job's page shows: events, why it waits, why it ended, the next step.
SPOKEN = (
    "console/attempt_limit.py",
    "console/job_page.py",
    "console/visitor.py",
    "control/*.py",
    "db/jobs.py",
    "engines/slurm/accounts.py",
    "engines/slurm/board.py",
    "engines/slurm/commands.py",
    "engines/slurm/engine.py",
    "engines/slurm/machines.py",
    "engines/slurm/reasons.py",
    "engines/slurm/sight.py",
    "model/diagnosis.py",
    "model/failures/*.py",
    "model/queue.py",
    "runner/*.py",
    "runner/environment/*.py",
    "runner/gang/*.py",
    "runner/remote/*.py",
    "runner/sandbox/*.py",
    "services/access.py",
    "services/explanation.py",
    "services/holding.py",
    "services/jobs.py",
    "services/submission.py",
)
# Messages that are put together from pieces: how they look as a whole.
COMPOSED = (
    *("Completed.", "Failed.", "Terminated.", "Pending", "Running", "Terminating", "Abnormal"),
    *("starting", "staging", "installing", "training", "uploading", "ended", "stopping", "queued"),
    *("job Completed", "job Failed", "job Terminated", "job Failed: {1}", "job Terminated: {1}"),
    "attempt {1:n} ended, attempt {2:n} follows",
    "attempt {1:n} ended, the job is {2}",
    *("{1:n} s", "{1:n} min", "{1:n} h {2:n} min", "{1:n} d"),
    *("{1:n} cores, {2:n} GiB", "{1}: {2:n} cores, {3:n} GiB", "{1:n} x {2}", "shared cores"),
    *("{1:n} x {2}, {3:n} cores, {4:n} GiB", "{1}: {2:n} {3}, {4:n} cores, {5:n} GiB"),
    *("{1:n} core, {2:n} GiB", "{1}: {2:n} core, {3:n} GiB"),
    *("{1:n} x {2}, {3:n} core, {4:n} GiB", "{1}: {2:n} {3}, {4:n} core, {5:n} GiB"),
    "building the environment",
    "bubblewrap is not installed: jobs cannot be walled off from this machine.",
    "the log was not written to log_url: {1}",
    "Node {1}: {2}.",
    "Node {1}: {2}: {3}",
    "Node {1}: kept in the run folder: {2}",
    "Attempt {1} is over and the job goes back to the queue in {2} s.",
    "Attempt {1} is over and the job goes back to the queue.",
    "Rank {1} ended with exit code {2}.",
    "Rank {1} ended with exit code {2}: {3}.",
    "Rank {1} ended with exit code {2}: {3} (its log names rank {4}).",
    "Rank {1} was ended by signal {2} ({3}).",
    "Rank {1} was ended by signal {2} ({3}): {4}.",
    "Rank {1} was ended because the node ran out of memory.",
    "'{1}' is {2} ({3}).",
    "'{1}' is {2}.",
    "'{1}' is {2}: {3}",
    "Attempt {1} on {2}.",
    "Did you mean '{1}'?",
    "In use by {1} and others.",
    "In use by {1}.",
    "A stop was asked for: {1}",
    "Last event: {1}",
    "Slurm says: {1}",
    "Slurm refused: {1}",
    "Slurm refused the job: {1}",
    "The environment cannot be made: {1}",
    "The training ended well, but its outputs could not be uploaded: {1}",
    "The nodes of this job cannot have a network of their own: {1}",
)
_SENTENCE = re.compile(r"[A-Z`'\0][^\n]*[a-z]+ [^\n]*[a-z]+[^\n]*[.?]")


def collect() -> Catalog:
    """All messages of the templates and of the words that pages look up."""
    catalog = Catalog(project="Trainshed", charset="utf-8")
    methods = [("templates/**.html", "jinja2"), ("**.py", "python")]
    for name, _, message, _, context in extract_from_dir(
        CONSOLE, methods, {"**.html": {"newstyle_gettext": "true", "trimmed": "true"}}
    ):
        catalog.add(message, locations=[(name, 0)], context=context)
    return catalog


def collect_spoken() -> list[str]:
    """The templates of all sentences that the platform writes about jobs."""
    found = set(COMPOSED)
    for pattern in SPOKEN:
        for path in sorted(CONSOLE.parent.glob(pattern)):
            collector = _Collector()
            collector.visit(ast.parse(path.read_text("utf-8")))
            found |= collector.found
    return sorted(found)


class _Collector(ast.NodeVisitor):
    """Finds the sentences of a module: texts with a capital in front and a stop at their end."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # else a docstring
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "known":
            # What a known failure means is said in the middle of a sentence.
            for text in "\0".join(_text_of(argument) or "" for argument in node.args[2:4]).split("\0"):
                # Its holes are counted from 0, as `format` does.
                self.found.add(re.sub(r"\{(\d)\}", lambda hole: f"{{{int(hole[1]) + 1}}}", text.strip()))
            self.found.discard("")
            return
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        self._take(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._take(node)
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                self.visit(value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not self._take(node):
            self.generic_visit(node)

    def _take(self, node: ast.expr) -> bool:
        text = _text_of(node)
        if text is None or not _SENTENCE.fullmatch(text) or "\n" in text or "%s" in text:
            return False
        count = itertools.count(1)
        self.found.add(re.sub(r"(?:\0)+", lambda _: f"{{{next(count)}}}", text))
        return True


def _text_of(node: ast.expr) -> str | None:
    """A text with a zero byte for each value that is put into it; None for what is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(value) or "\0" for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = _text_of(node.left), _text_of(node.right)
        return None if sides == (None, None) else "".join(side or "\0" for side in sides)
    return None


def po_path(language: str) -> Path:
    """Where a language's messages are written by people."""
    return CONSOLE / "locale" / language / "LC_MESSAGES" / "console.po"


def sentences_path(language: str) -> Path:
    """Where a language's sentences are, by their English template."""
    return CONSOLE / "locale" / language / "sentences.json"


def read_sentences(language: str) -> dict[str, str]:
    """A language's sentences: one for each that the platform can write, empty where nobody has translated it."""
    path = sentences_path(language)
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {english: known.get(english, "") for english in collect_spoken()}


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
        sentences = read_sentences(language)
        missing += [english for english, told in sentences.items() if not told]
        for message in missing:
            sys.stderr.write(f"{language}: not translated: {message}\n")
        files = {po_path(language): as_po(catalog), po_path(language).with_suffix(".mo"): as_mo(catalog)}
        files[sentences_path(language)] = json.dumps(sentences, ensure_ascii=False, indent=1).encode() + b"\n"
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
