"""Words that pages look up by what the platform says: phases, details, levels, and messages by their code."""

from __future__ import annotations

from trainshed.model.phase import Phase

__all__ = ["CODES", "DETAILS", "DONE", "LEVELS", "PHASES", "SOURCES", "WORDS"]


def _(message: str) -> str:
    """Mark a message for the catalogs; it is translated when a page is made."""
    return message


PHASES: dict[str, str] = {
    Phase.CREATING: _("Creating"),
    Phase.PENDING: _("Pending"),
    Phase.RUNNING: _("Running"),
    Phase.TERMINATING: _("Terminating"),
    Phase.ABNORMAL: _("Abnormal"),
    Phase.COMPLETED: _("Completed"),
    Phase.FAILED: _("Failed"),
    Phase.TERMINATED: _("Terminated"),
}

DETAILS: dict[str, str] = {
    "snapshotting": _("snapshotting the code"),
    "resolving": _("resolving packages"),
    "queued": _("queued"),
    "queued in slurm": _("queued in Slurm"),
    "restarting": _("restarting"),
    "preempted": _("preempted"),
    "starting": _("starting"),
    "staging": _("staging inputs"),
    "installing": _("installing packages"),
    "training": _("training"),
    "training, idle": _("training, idle"),
    "uploading": _("uploading outputs"),
    "training ended, held open": _("training ended, held open"),
    "stopping": _("stopping"),
    "lost": _("out of reach"),
}

LEVELS: dict[str, str] = {
    "info": _("info"),
    "warning": _("warning"),
    "error": _("error"),
}

SOURCES: dict[str, str] = {
    "api": _("API"),
    "control": _("control"),
    "runner": _("runner"),
    "engine": _("engine"),
    "user": _("user"),
    "platform": _("platform"),
}

# What was just done, by the word in the address that a page was opened with.
DONE: dict[str, str] = {
    "stop": _("The job was asked to stop."),
    "rerun": _("This is the rerun: same code, inputs and settings."),
    "delete": _("The job was deleted. Its outputs stay in the object store."),
    "sign-out": _("You are signed out."),
    "expired": _("Your session has ended. Sign in again to go on."),
}

# Errors that the pages themselves lead to, by their code. Others are shown as the platform words them.
CODES: dict[str, str] = {
    "bad_login_link": _("This login link is unknown, was used already, or is too old."),
    "bad_password": _("The name or the password is wrong."),
    "too_many_attempts": _("There were too many failed attempts. Wait a few minutes, or use a login link."),
    "bad_csrf": _("This form is not of your session. Load the page again."),
    "cross_site": _("The form came from another site and was refused."),
    "unknown_page": _("There is no such page."),
    "unknown_job": _("There is no such job, or it belongs to another workspace."),
    "method": _("This page cannot be used that way."),
    "bad_form": _("The form cannot be read."),
    "too_large": _("The form is too large."),
    "internal": _("The platform failed to answer."),
}

WORDS: dict[str, dict[str, str]] = {
    "phase": PHASES,
    "detail": DETAILS,
    "level": LEVELS,
    "source": SOURCES,
    "done": DONE,
    "code": CODES,
}
