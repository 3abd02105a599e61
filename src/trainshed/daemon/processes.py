"""The running platform as seen from outside: its processes, memory, ports, disk and jobs."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainshed.daemon.home_folder import find_holder, load_settings, read_marker
from trainshed.daemon.startup import api_url, obs_url, read_state
from trainshed.model.home import Home

__all__ = ["describe_platform", "resident_mb"]


def describe_platform(home: Home) -> dict[str, Any]:
    """Everything that `trainshed status` shows, as plain data."""
    marker = read_marker(home)
    settings = load_settings(home, os.environ, {})
    holder = find_holder(home)
    state = read_state(home) if holder else {}
    if state.get("pid") != holder:
        # Left by a platform that was killed; the one that is starting has not said anything yet.
        state = {}
    description: dict[str, Any] = {
        "home": str(home.path),
        "exists": bool(marker),
        "running": holder is not None,
        "ready": bool(state.get("ready"))
        and all(process["state"] == "ready" for process in state.get("processes", [])),
        "pid": holder or 0,
        "version": state.get("version", marker.get("version", "")),
        "uptime_seconds": round(time.time() - state["started_at"]) if "started_at" in state else 0,
        "url": "",
        "obs_url": "",
        "processes": [],
        "memory_mb": 0.0,
    }
    if state:
        settings = replace(
            settings,
            host=state["host"],
            port=int(state["port"]),
            obs_port=int(state["obs_port"]),
            tls=bool(state.get("tls")),
            tls_certificate="",
            public_url=state.get("public_url", settings.public_url),
            public_obs_url=state.get("public_obs_url", settings.public_obs_url),
        )
        description["url"], description["obs_url"] = api_url(settings), obs_url(settings)
        parts = [{"name": "supervisor", "pid": holder, "state": "ready", "restarts": 0, "last_exit": ""}]
        for part in parts + list(state["processes"]):
            description["processes"].append({**part, "memory_mb": resident_mb(int(part["pid"]))})
            if part["name"] == "store":
                description["processes"] += _describe_mates(int(part["pid"]))
        description["memory_mb"] = round(sum(part["memory_mb"] for part in description["processes"]), 1)
    description["ports"] = {"api": settings.port, "obs": settings.obs_port}
    description["disk"] = _disk(home.path)
    description["jobs"] = _count_jobs(home, settings.database_url) if marker else {}
    return description


def _describe_mates(pid: int) -> list[dict[str, Any]]:
    """The further processes of a busy object store."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [
        {
            "name": "store-mate",
            "pid": int(child),
            "state": "ready",
            "restarts": 0,
            "last_exit": "",
            "memory_mb": resident_mb(int(child)),
        }
        for child in children
    ]


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB; 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1024**2, 1)


def _disk(path: Path) -> dict[str, float]:
    while not path.exists():
        path = path.parent
    usage = shutil.disk_usage(path)
    return {"total_gb": round(usage.total / 1e9, 1), "free_gb": round(usage.free / 1e9, 1)}


def _count_jobs(home: Home, database_url: str) -> dict[str, int]:
    """Jobs by phase, read from the database itself: it answers when the platform is down, too."""
    statement = "SELECT phase, count(*) FROM jobs GROUP BY phase ORDER BY phase"
    if database_url:
        from sqlalchemy import text
        from sqlalchemy.exc import SQLAlchemyError

        from trainshed.db.engine import open_engine

        engine = open_engine(database_url)
        try:
            with engine.connect() as session:
                return {str(phase): int(count) for phase, count in session.execute(text(statement))}
        except SQLAlchemyError:
            return {}
        finally:
            engine.dispose()
    path = Path(home.database_url.removeprefix("sqlite:///"))
    if not path.exists():
        return {}
    connection = sqlite3.connect(path.as_uri() + "?mode=ro", uri=True, timeout=2)
    try:
        return {str(phase): int(count) for phase, count in connection.execute(statement)}
    except sqlite3.Error:
        return {}
    finally:
        connection.close()
