"""Metrics of jobs: read by people, written by jobs with their own token."""

from __future__ import annotations

from fastapi import APIRouter

__all__ = ["router"]

router = APIRouter(tags=["metrics"])
