"""A job's requirement file: which file it is, and which of its lines are accepted."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainshed.model.errors import InvalidInput, TooLarge

__all__ = ["CheckedRequirements", "check_requirements", "choose_requirements", "requirement_file_names"]

_LARGEST = 256 * 1024
_NAMES = ("pip-requirements.txt", "pip-requirement.txt", "requirements.txt", "requirement.txt")
_INDEX_OPTIONS = (
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--no-index",
    "--trusted-host",
)
_HARMLESS_OPTIONS = ("--only-binary", "--no-binary", "--prefer-binary", "--pre", "--require-hashes")
_URL = re.compile(
    r"^[A-Za-z0-9][\w.-]*(\[[^\]]*\])?\s*@\s*(?P<url>\S+)|^(?P<bare>[A-Za-z][A-Za-z0-9+.-]*://\S+)"
)


class CheckedRequirements:
    """Requirements that may be resolved: the text, and whether they name places outside the index."""

    def __init__(self, text: str, leaves_index: bool) -> None:
        self.text = text
        self.leaves_index = leaves_index


def requirement_file_names() -> tuple[str, ...]:
    """The names of requirement files that are looked for beside the boot file, first one first."""
    return _NAMES


def choose_requirements(names: Iterable[str]) -> str | None:
    """Which of the given file names is the job's requirement file, if any."""
    present = set(names)
    return next((name for name in _NAMES if name in present), None)


def check_requirements(text: str, *, allow_index: bool = False) -> CheckedRequirements:
    """Accept packages and URLs of packages; refuse lines that reach into the host or to another index."""
    if len(text) > _LARGEST:
        raise TooLarge(f"The requirement file is larger than {_LARGEST // 1024} KiB.", where="requirements")
    kept: list[str] = []
    leaves_index = False
    # A backslash at the end joins lines, as in files with hashes.
    for number, line in enumerate(
        text.lstrip("\ufeff").replace("\\\r\n", " ").replace("\\\n", " ").splitlines(), 1
    ):
        content = re.sub(r"(^|\s)#.*$", "", line).strip()
        if not content:
            continue
        where = f"requirements line {number}"
        option = re.split(r"[\s=]", content, maxsplit=1)[0]
        if "\0" in content or "${" in content:
            raise InvalidInput(
                f"'{content[:120]}' names a variable.", hint="Write the value itself.", where=where
            )
        if option.startswith("-"):
            if option.startswith("-i") and option != "-i":
                option = "-i"
            if option in _INDEX_OPTIONS:
                _check_index_option(content, option, allow_index, where)
                leaves_index = True
            elif option not in _HARMLESS_OPTIONS:
                raise _refuse_option(content, option, where)
            if option in ("--prefer-binary", "--pre"):
                continue
        elif match := _URL.match(content):
            url = match["url"] or match["bare"]
            if not re.match(r"(git\+)?https?://", url):
                raise InvalidInput(
                    f"'{content[:120]}' does not name a place that can be reached from here.",
                    hint="Use a package of the index, or an https:// URL of a wheel or source archive.",
                    where=where,
                )
            leaves_index = True
        elif content.startswith((".", "/", "~")) or re.match(r"[^\s;\[]*[/\\]", content):
            raise InvalidInput(
                f"'{content[:120]}' is a path; an environment is shared by jobs and cannot hold their files.",
                hint="Put the code beside the boot file and import it, or upload a wheel and give its URL.",
                where=where,
            )
        kept.append(content)
    return CheckedRequirements("\n".join(kept) + "\n" if kept else "", leaves_index)


def _check_index_option(content: str, option: str, allow_index: bool, where: str) -> None:
    if not allow_index:
        raise InvalidInput(
            f"The requirement file names a package index of its own ({option}).",
            hint="Remove the line: the platform's index is used. An administrator can allow it with the setting "
            "requirements_may_name_index.",
            code="index_not_allowed",
            where=where,
        )
    value = re.split(r"[\s=]+", content, maxsplit=1)[-1]
    if option in ("-i", "--index-url", "--extra-index-url", "-f", "--find-links") and not value.startswith(
        ("https://", "http://")
    ):
        raise InvalidInput(f"{option} needs an http(s) URL.", where=where)


def _refuse_option(content: str, option: str, where: str) -> InvalidInput:
    if option in ("-e", "--editable"):
        hint = "Put the code beside the boot file and import it."
    elif option in ("-r", "--requirement", "-c", "--constraint"):
        hint = "Write all packages into the one file."
    else:
        hint = "Leave the line out."
    return InvalidInput(f"'{content[:120]}' is not supported in a requirement file.", hint=hint, where=where)
