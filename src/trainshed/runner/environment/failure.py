"""Why an environment could not be made, in one line, from what uv printed."""

from __future__ import annotations

import re
from collections.abc import Callable

from trainshed.model.errors import InvalidInput, TrainshedError, Unavailable

__all__ = ["EnvironmentFailed", "HeldErrors", "explain_failure", "needs_build"]

_LONGEST = 300
_UNREACHABLE = (
    "error sending request",
    "failed to fetch",
    "dns error",
    "connection refused",
    "timed out",
    "operation timed out",
    "certificate",
)


class EnvironmentFailed(InvalidInput):
    """The packages that were asked for cannot be installed together, or one of them cannot be built."""

    code = "environment_failed"

    def __init__(self, message: str, *, hint: str = "", package: str = "", output: str = "") -> None:
        super().__init__(message, hint=hint, where="requirements")
        self.package = package
        self.output = output


class HeldErrors:
    """Passes a log on as it comes, but holds back what follows an error until its weight is known.

    A first try with wheels alone may fail and a second one succeed: its error would only mislead.
    """

    def __init__(self, log: Callable[[bytes], None]) -> None:
        self._log = log
        self._held: list[bytes] = []

    def __call__(self, line: bytes) -> None:
        if self._held or line.startswith(b"error:"):
            self._held.append(line)
        else:
            self._log(line)

    def release(self) -> None:
        """The error was one: let the lines go."""
        for line in self._held:
            self._log(line)
        self._held = []


def needs_build(output: str) -> bool:
    """Whether uv failed only because a package has no wheel and was not to be built."""
    return "building from source is disabled" in output or "--no-build" in output


def explain_failure(output: str) -> TrainshedError:
    """The error for what uv printed; its `output` is the whole text where there is one."""
    text = " ".join(output.split())
    if "No space left on device" in text:
        return Unavailable(
            "The disk of the environments is full.", hint="Free some space and try again.", code="disk_full"
        )
    for pattern, reason in (
        (
            r"Because (\S+) was not found in the (?:package registry|provided package locations)",
            "is not in the package index",
        ),
        (r"there (?:is|are) no versions? of (\S+?),? ", "does not exist in the package index"),
        (r"(\S+) needs to be downloaded from a registry", "is not in the package index"),
        (r"Because (\S+) has no usable wheels", "has no wheel for this machine"),
        (r"Because (\S+) has no wheels with a matching ([\w ]+)", "has no wheel for this Python or machine"),
    ):
        if match := re.search(pattern, text):
            return _failed(match[1], reason, output)
    if match := re.search(r"Failed to (?:download and )?build `([^`]+)`", text):
        return _failed(match[1], f"could not be built: {_last_word(output)}", output)
    lowered = text.lower()
    if any(word in lowered for word in _UNREACHABLE) and "because" not in lowered:
        where = re.search(r"https?://([^/\s`)]+)", text)
        return Unavailable(
            f"The package index{' at ' + where[1].rpartition('@')[2] if where else ''} cannot be reached.",
            hint="Check the network and pip's settings (`pip config list`) of the platform.",
            code="index_unreachable",
        )
    match = re.search(r"error: (.*)", text)
    message = _shorten(match[1] if match else text or "The installer ended without a word.")
    return EnvironmentFailed(
        f"The environment cannot be made: {message}",
        hint="Correct the packages and try again.",
        output=output,
    )


def _failed(package: str, reason: str, output: str) -> EnvironmentFailed:
    package = package.strip("`,.;")
    return EnvironmentFailed(
        _shorten(f"The package {package} {reason}").rstrip(".") + ".",
        hint="Correct the requirement file or the engine; the whole output is in the job's log.",
        package=re.split(r"[\s=<>!~@\[]", package, maxsplit=1)[0],
        output=output,
    )


def _last_word(output: str) -> str:
    """The line in which a build says what is wrong: the last one that speaks of an error."""
    lines = [
        line.strip() for line in output.splitlines() if line.strip() and not line.strip().startswith("hint:")
    ]
    telling = [
        line
        for line in lines
        if re.match(r"(?:\w+\.)*\w*(?:Error|Exception)\b.*|error: .+|fatal error: .+", line)
    ]
    telling = [line for line in telling if not line.startswith(("error: Failed to", "error: command"))]
    return (telling or lines or ["it ended without a word"])[-1]


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
