"""A case of the table: one request, what the reference says of its answer, and what must be so afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from s3_table.stage import Stage

__all__ = ["Answer", "Case", "run_case"]


@dataclass(frozen=True)
class Answer:
    """What came back, whichever client asked."""

    status: int
    # S3's error code; empty for a success, and where an answer has no body to hold one.
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    # The answer as boto3 understood it.
    data: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A member of boto3's answer, if it is there."""
        return self.data.get(name, default)

    def text_of(self, name: str) -> str:
        """The text of the first element of that name in an XML body."""
        for element in ElementTree.fromstring(self.body).iter():
            if element.tag.rpartition("}")[2] == name:
                return element.text or ""
        return ""


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    # As the reference calls it.
    operation: str
    # What is special about this request.
    name: str
    call: Callable[[Stage], Answer]
    status: int = 200
    code: str = ""
    # What has to be there first.
    before: tuple[Callable[[Stage], None], ...] = ()
    # What is seen of the answer or found afterwards, and what that should be.
    then: Callable[[Stage, Answer], tuple[object, object]] | None = None
    # Refused requests leave everything as it was. A few that change things answer with an error nevertheless.
    is_harmless: bool = True

    def __str__(self) -> str:
        return f"{self.operation}: {self.name}"


def run_case(case: Case, stage: Stage) -> str:
    """Play a case; returns what is wrong with the answer, or nothing."""
    for step in case.before:
        step(stage)
    guarded = case.status >= 300 and case.is_harmless
    # Whom a request may not reach is looked at as well.
    is_foreign = case.code == "AccessDenied"
    earlier = stage.snapshot(is_foreign) if guarded else None
    answer = case.call(stage)
    if (answer.status, answer.code) != (case.status, case.code):
        return (
            f"answered {answer.status} {answer.code}, not {case.status} {case.code}:"
            f" {answer.body[:300].decode('utf-8', 'replace')}"
        )
    if guarded and (later := stage.snapshot(is_foreign)) != earlier:
        return f"refused, and yet something changed: {earlier} became {later}"
    if case.then is not None:
        found, wanted = case.then(stage, answer)
        if found != wanted:
            return f"found {str(found)[:400]}, not {str(wanted)[:400]}"
    return ""
