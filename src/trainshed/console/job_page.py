"""One job: how it stands and why, its log, its curves, its story; and stopping, rerunning, deleting it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse

from trainshed.console.job_list import digest_of
from trainshed.console.sentences import sentences_of
from trainshed.console.site import Site
from trainshed.console.visitor import Visitor, visitor_of
from trainshed.model.phase import Phase
from trainshed.services import jobs, leftovers, logs, tensorboard
from trainshed.services.access import may
from trainshed.services.failure_facts import telling_stream
from trainshed.services.jobs import JobView

__all__ = ["JobPages"]

_STORY_LIMIT = 200
_DOWNLOAD_PIECE = 1024 * 1024


class JobPages:
    """The page of one job."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def show(self, request: Request) -> Response:
        """The whole page. An address with a name or a part of the id leads to the one with the whole id."""
        visitor = visitor_of(self._site.platform, request)
        ref = request.path_params["job"]
        job = jobs.get_job(self._site.platform, visitor.caller, ref)
        if job.id != ref:
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"/jobs/{quote(job.id, safe='')}{query}", status_code=307)
        return self._site.page(
            request,
            visitor,
            "job.html",
            **self._live(visitor, job),
            spec_text=_as_yaml(job.spec),
            stream=request.query_params.get("stream", "")[:100],
            shown_attempt=_number(request.query_params.get("attempt", "")),
            files=self._files(visitor, job),
        )

    def refresh(self, request: Request) -> Response:
        """What changes while a job runs; nothing if the browser has it already."""
        visitor = visitor_of(self._site.platform, request)
        job = jobs.get_job(self._site.platform, visitor.caller, request.path_params["job"])
        content = self._live(visitor, job)
        if content["digest"] == request.query_params.get("seen", ""):
            return Response(status_code=204)
        return self._site.renderer.page(
            "job_live.html",
            visitor.language,
            now=self._site.platform.clock(),
            refreshed=True,
            **content,
        )

    def tell(self, request: Request) -> Response:
        """A sentence of the platform's in the visitor's language."""
        visitor = visitor_of(self._site.platform, request)
        text = request.query_params.get("text", "")[:4000]
        return PlainTextResponse(sentences_of(visitor.language).translate(text))

    def download(self, request: Request) -> Response:
        """A whole log as a file: exactly the bytes that were written so far."""
        visitor = visitor_of(self._site.platform, request)
        job = jobs.get_job(self._site.platform, visitor.caller, request.path_params["job"])
        stream = request.query_params.get("stream", "rank-0")[:100]
        attempt = _number(request.query_params.get("attempt", "")) or None

        def read(offset: int) -> logs.LogChunk:
            return logs.read_log(
                self._site.platform,
                visitor.caller,
                job.id,
                attempt=attempt,
                stream=stream,
                offset=offset,
                limit=_DOWNLOAD_PIECE,
            )

        # The first piece is read before the answer begins: an unknown stream is an error page, not a file.
        first = read(0)

        def pieces() -> Iterator[bytes]:
            chunk = first
            # What is written from now on is not part of it: a log that grows without end would never finish.
            end = first.size
            while chunk.data:
                yield chunk.data[: max(0, end - chunk.offset)]
                if chunk.next_offset >= end:
                    return
                chunk = read(chunk.next_offset)

        name = "".join(
            c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in f"{job.name}-{stream}"
        )
        headers = {"Content-Disposition": f'attachment; filename="{name}.log"'}
        return StreamingResponse(pieces(), media_type="text/plain; charset=utf-8", headers=headers)

    def tensorboard(self, request: Request) -> Response:
        """Go on to TensorBoard, which is served from another origin."""
        visitor = visitor_of(self._site.platform, request)
        ref = request.path_params["job"]
        opened = tensorboard.open_tensorboard(self._site.platform, visitor.caller, ref)
        return RedirectResponse(opened.url, status_code=303, headers={"Cache-Control": "no-store"})

    async def stop(self, request: Request) -> Response:
        """Ask the job to stop."""
        return await self._act(request, self._stop)

    async def rerun(self, request: Request) -> Response:
        """Submit the job again."""
        return await self._act(request, self._rerun)

    async def delete(self, request: Request) -> Response:
        """Delete the job."""
        return await self._act(request, self._delete)

    async def _act(self, request: Request, act: Callable[[Visitor, str], str]) -> Response:
        form = await request.form(max_files=0, max_fields=10)

        def run() -> Response:
            visitor = visitor_of(self._site.platform, request, form)
            return RedirectResponse(act(visitor, request.path_params["job"]), status_code=303)

        return await run_in_threadpool(run)

    def _stop(self, visitor: Visitor, ref: str) -> str:
        reason = f"Stopped in the console by {visitor.caller.user_name}."
        job = jobs.stop_job(self._site.platform, visitor.caller, ref, reason=reason)
        return f"/jobs/{job.id}?done=stop"

    def _rerun(self, visitor: Visitor, ref: str) -> str:
        return f"/jobs/{jobs.rerun_job(self._site.platform, visitor.caller, ref).id}?done=rerun"

    def _delete(self, visitor: Visitor, ref: str) -> str:
        jobs.delete_job(self._site.platform, visitor.caller, ref)
        return "/jobs?done=delete"

    def _files(self, visitor: Visitor, job: JobView) -> list[leftovers.Leftover]:
        if not Phase(job.phase).is_terminal or not job.attempt:
            return []
        return leftovers.list_leftovers(self._site.platform, visitor.caller, job.id)

    def _live(self, visitor: Visitor, job: JobView) -> dict[str, Any]:
        """All that the refreshed part shows."""
        events = jobs.job_events(self._site.platform, visitor.caller, job.id, limit=5000)
        explanation = jobs.explain_job(self._site.platform, visitor.caller, job.id)
        phase = Phase(job.phase)
        # A view tells its owner's name, which is unique, but not the id.
        caller = visitor.caller
        owned = _Owned(job.workspace_id, caller.user_id if job.owner == caller.user_name else "")
        return {
            "job": job,
            "ended": phase.is_terminal,
            "explanation": explanation,
            "attempts": jobs.attempts(self._site.platform, caller, job.id) if job.attempt > 1 else [],
            "events": events[-_STORY_LIMIT:],
            "events_left_out": max(0, len(events) - _STORY_LIMIT),
            "default_stream": _telling_stream(job),
            "has_tools": job.attempt > 0 and self._site.platform.settings.tools_port >= 0,
            "may_stop": not phase.is_terminal
            and phase is not Phase.TERMINATING
            and may(caller, "job.stop", owned),
            "may_delete": phase.is_terminal and may(caller, "job.delete", owned),
            "may_rerun": may(caller, "job.rerun", owned),
            "digest": digest_of(job.version, events[-1].id if events else 0, explanation),
        }


@dataclass(frozen=True)
class _Owned:
    """A job, as permission sees it."""

    workspace_id: str
    owner_id: str


def _telling_stream(job: JobView) -> str:
    """The log to open first: of what failed; empty: any with lines."""
    stream = telling_stream(job.ending or {})
    return stream or ("rank-0" if job.detail in ("training", "training, idle", "uploading") else "")


def _as_yaml(spec: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=100)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
