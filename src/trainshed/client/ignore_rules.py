"""Which files of a code folder stay at home: `.trainshedignore`, in the style of `.gitignore`."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["DEFAULT_PATTERNS", "IgnoreRules", "parse_ignore_rules"]

DEFAULT_PATTERNS = (".git", "__pycache__/", ".venv/")


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    folders_only: bool
    keeps: bool


@dataclass(frozen=True)
class IgnoreRules:
    """The rules in order; the last one that matches decides."""

    rules: tuple[_Rule, ...]

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Whether the file or folder at this relative path is left out."""
        ignored = False
        for rule in self.rules:
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(path):
                ignored = not rule.keeps
        return ignored


def parse_ignore_rules(text: str) -> IgnoreRules:
    """Read the patterns, one per line, behind the ones that always hold.

    `#` starts a comment, `!` keeps what an earlier line ignored, a `/` at the end means folders only, a `/`
    elsewhere ties the pattern to the code folder's root; `*`, `?`, `[ab]` and `**` work as in git.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    written = [line for line in lines if line and not line.startswith("#")]
    return IgnoreRules(tuple(_parse_rule(line) for line in (*DEFAULT_PATTERNS, *written)))


def _parse_rule(line: str) -> _Rule:
    keeps = line.startswith("!")
    line = line.removeprefix("!")
    folders_only = line.endswith("/")
    body = line.rstrip("/")
    anchored = "/" in body
    expression = _translate(body.removeprefix("/"))
    return _Rule(re.compile(expression if anchored else f"(?:.*/)?{expression}"), folders_only, keeps)


def _translate(glob: str) -> str:
    out: list[str] = []
    position = 0
    while position < len(glob):
        rest = glob[position:]
        if rest.startswith("**/"):
            out.append("(?:.*/)?")
            position += 3
        elif rest.startswith("**"):
            out.append(".*")
            position += 2
        elif rest[0] == "*":
            out.append("[^/]*")
            position += 1
        elif rest[0] == "?":
            out.append("[^/]")
            position += 1
        elif rest[0] == "[" and (end := rest.find("]", 2)) > 0:
            inside = rest[1:end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[{'^' + inside[1:] if inside[0] in '!^' else inside}]")
            position += end + 1
        elif rest[0] == "\\" and len(rest) > 1:
            out.append(re.escape(rest[1]))
            position += 2
        else:
            out.append(re.escape(rest[0]))
            position += 1
    return "".join(out)
