"""What uploads to any store have in common: without a `commit` nothing of them stays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["PendingUpload"]


class PendingUpload(ABC):
    """Takes bytes until it is committed; leaving the `with` block without that discards them."""

    @abstractmethod
    def abort(self) -> None:
        """Discard what was written. Does nothing after a commit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()
