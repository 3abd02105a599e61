"""Slurm's reasons and refusals in words that a user can act on. Pure."""

from __future__ import annotations

from typing import NamedTuple

from trainshed.engines.engine import (
    EXIT_NO_PLATFORM,
    EXIT_NO_PYTHON,
    EXIT_REFUSED,
    EXIT_UNDELIVERED,
    EXIT_UNFIT,
)
from trainshed.engines.slurm.answers import JobEnd, QueuedJob
from trainshed.model.attempt import Cause, Ending

__all__ = ["Words", "explain_end", "explain_refusal", "explain_wait", "is_passing"]

_ADMIN = "Ask the cluster's administrator."


class Words(NamedTuple):
    """A reason, and the next step."""

    reason: str
    hint: str = ""


_WAITS: dict[str, Words] = {
    "None": Words("Slurm has not looked at it yet."),
    "Priority": Words("Other jobs of the cluster have a higher priority in Slurm and go first."),
    "Resources": Words("Slurm waits until enough machines are free."),
    "Dependency": Words("Slurm waits for a job that this one depends on."),
    "JobHeldUser": Words(
        "It is held in Slurm by its owner.", "`scontrol release` lets it go; or stop the job here."
    ),
    "JobHeldAdmin": Words(
        "It is held in Slurm by an administrator, or by Slurm itself after a start that failed.", _ADMIN
    ),
    "BeginTime": Words("Slurm starts it later: its begin time has not come."),
    "PartitionDown": Words("The partition takes jobs but starts none: it is down.", _ADMIN),
    "PartitionInactive": Words("The partition is inactive.", _ADMIN),
    "PartitionNodeLimit": Words(
        "It asks for more machines than the partition gives to one job.", "Use fewer nodes or another pool."
    ),
    "PartitionTimeLimit": Words(
        "Its time limit is longer than the partition allows.",
        "Give a shorter `time_limit`, or use another pool.",
    ),
    "ReqNodeNotAvail": Words("Machines that it needs are not available: down, drained or reserved.", _ADMIN),
    "NodeDown": Words("A machine that it needs is down.", _ADMIN),
    "BadConstraints": Words(
        "No machine of the cluster can satisfy what it asks for.", "Choose another flavor or pool."
    ),
    "Reservation": Words("It waits for a reservation to begin."),
    "Licenses": Words("It waits for a licence."),
    "AssociationJobLimit": Words("The account has as many jobs as it may have."),
    "AssocGrpCpuLimit": Words("The account uses as many cores as it may use."),
    "QOSJobLimit": Words("The quality of service has as many jobs as it may have."),
    "QOSResourceLimit": Words("The quality of service uses as much as it may use."),
    "QOSTimeLimit": Words("The quality of service has used up its time."),
    "QOSNotAllowed": Words("The partition does not take this quality of service.", _ADMIN),
    "InvalidAccount": Words("Slurm does not know the account that the pool names.", _ADMIN),
    "InvalidQOS": Words("Slurm does not know the quality of service that the pool names.", _ADMIN),
    "AccountNotAllowed": Words("The account may not use this partition.", _ADMIN),
    "Prolog": Words("The machines are being prepared."),
    "Cleaning": Words("An earlier run is being cleared away."),
    "launch failed requeued held": Words(
        "Its start failed on a machine and Slurm holds it.",
        "`scontrol release` lets it go; see the machine's log.",
    ),
}
_LIMITS = (
    ("QOS", "a limit of its quality of service"),
    ("Assoc", "a limit of its account"),
    ("MaxCpuPerAccount", "a limit of its account"),
    ("Max", "a limit that the site set"),
)
_MUNGE = "Start munged there, with the cluster's key; `trainshed engine check slurm` tries it."
_WAIT_FOR_IT = "It is tried again; `trainshed engine check slurm` says what is wrong."
# What passes by itself, or when somebody mends it: the attempt is handed over again, later.
_PASSING = (
    ("QOSMaxSubmitJob", "The quality of service has as many jobs in Slurm as it may have.", ""),
    ("AssocMaxSubmitJobLimit", "The account has as many jobs in Slurm as it may have.", ""),
    ("AssocGrpSubmitJobsLimit", "The account has as many jobs in Slurm as it may have.", ""),
    (
        "Job violates accounting/QOS policy",
        "A limit of its account or quality of service is reached.",
        "It is tried again when others of its jobs have ended; else ask the cluster's administrator.",
    ),
    (
        "Required partition not available",
        "The partition takes no jobs: it is inactive or drained.",
        "It is tried again until the administrator opens the partition; or stop it and use another pool.",
    ),
    ("temporarily unable to accept", "Slurm takes no jobs at this moment.", ""),
    ("Resource temporarily unavailable", "Slurm takes no jobs at this moment.", ""),
    ("Maximum", "Slurm has as many jobs as it may have.", ""),
    ("Unable to contact slurm controller", "Slurm's controller does not answer.", _WAIT_FOR_IT),
    ("Socket timed out", "Slurm's controller does not answer in time.", _WAIT_FOR_IT),
    ("Zero Bytes were transmitted", "Slurm's controller does not answer.", _WAIT_FOR_IT),
    ("Connection refused", "Slurm's controller does not answer.", _WAIT_FOR_IT),
    (
        "Protocol authentication error",
        "Slurm refuses the platform's credential: MUNGE does not run, or its key differs.",
        _MUNGE,
    ),
    ('Failed to connect to "', "MUNGE does not run on the platform's machine.", _MUNGE),
    ("Munge encode failed", "MUNGE does not run on the platform's machine.", _MUNGE),
    ("Unable to lookup", "Slurm's controller cannot be found.", _WAIT_FOR_IT),
    (
        "No space left",
        "A disk of Slurm or of the platform is full.",
        "Make room: StateSaveLocation of the controller, or the platform's own disk. It is tried again.",
    ),
    (
        "I/O error writing script/environment to file",
        "The disk of Slurm's controller is full.",
        "Make room in its StateSaveLocation; the job is tried again.",
    ),
)
_REFUSALS = (
    (
        "Invalid partition",
        "Slurm has no such partition.",
        "The pool's `partition` is wrong: ask the administrator.",
    ),
    ("Invalid account", "Slurm does not know the account, or it may not use this partition.", _ADMIN),
    ("Invalid qos", "Slurm does not know the quality of service.", _ADMIN),
    ("Invalid generic resource", "The cluster has no such devices.", "Choose another flavor or pool."),
    (
        "Requested node configuration is not available",
        "No machine of the partition has what the job asks for.",
        "Choose a smaller flavor, or another pool.",
    ),
    (
        "More processors requested",
        "It asks for more cores than the partition has.",
        "Choose a smaller flavor.",
    ),
    (
        "Requested time limit",
        "Its time limit is longer than the partition allows.",
        "Give a shorter `time_limit`, or use another pool.",
    ),
    (
        "Node count specification invalid",
        "It asks for more machines than the partition gives.",
        "Use fewer nodes, or another pool.",
    ),
    (
        "not permitted to use this partition",
        "The account that submits may not use this partition.",
        _ADMIN,
    ),
    ("is required", "The site wants something more of each job.", "Add it to the pool's `options`."),
    (
        "unrecognized option",
        "Slurm does not know one of the pool's options.",
        "Correct `options` of the pool.",
    ),
    ("Access/permission denied", "Slurm does not let the platform submit this job.", _ADMIN),
)


def explain_wait(job: QueuedJob) -> Words:
    """Why Slurm has not started a job."""
    if job.state == "CONFIGURING":
        return Words("Slurm is powering up and preparing its machines.")
    if job.state in ("REQUEUE_HOLD", "SPECIAL_EXIT"):
        return _WAITS["JobHeldAdmin"]
    reason = job.reason.strip("()")
    words = _WAITS.get(reason)
    if words is None and "DOWN, DRAINED or reserved" in reason:
        words = Words(
            "Machines that it needs are down, drained, or reserved for partitions of higher priority.",
            "`trainshed nodes` shows their state.",
        )
    if words is None and reason.startswith("ReqNodeNotAvail"):
        words = _WAITS["ReqNodeNotAvail"]
    if words is None:
        kind = next((name for start, name in _LIMITS if reason.startswith(start)), "")
        words = Words(f"It has reached {kind} ({reason})." if kind else f"Slurm says: {reason}.")
    if job.starts_at not in ("", "N/A", "Unknown") and reason in ("Priority", "Resources", "BeginTime"):
        # Beside the reason, not in it, and without the seconds: the estimate changes all the time, for all that wait.
        moment = job.starts_at.replace("T", " ")[: len("2027-01-01 10:00")]
        return Words(words.reason, f"Slurm expects to start it at {moment}.")
    return words


def is_passing(text: str) -> Words | None:
    """What keeps Slurm from taking the job just now; None when waiting would not help."""
    return next(
        (Words(reason, hint or _WAIT_FOR_IT) for mark, reason, hint in _PASSING if mark in text), None
    )


def explain_refusal(text: str) -> Words:
    """Why Slurm refused a job for good."""
    said = " ".join(
        line.removeprefix("sbatch: ").removeprefix("error: ").strip() for line in text.splitlines()
    )
    for mark, reason, hint in _REFUSALS:
        if mark in said:
            return Words(f"{reason} Slurm says: {said[:400]}", hint)
    return Words(f"Slurm refused the job: {said[:400] or 'it gave no reason.'}", _ADMIN)


def explain_end(end: JobEnd | None, node: int, place: str = "run-…", host: str = "") -> Ending:
    """Why a runner is gone that left no final report, by what Slurm says of the job.

    `place` is how the folder of its run begins on its machine, `host`.
    """
    again = "Rerun the job, or give it `restarts` so that this happens by itself."

    def failed(code: str, message: str, hint: str = again, cause: Cause = "node") -> Ending:
        return Ending("failed", cause, code, message, hint, node=node)

    if end is None:
        return failed("runner_lost", "Slurm does not know the job any more, and its runner left no report.")
    if end.state == "PREEMPTED":
        return failed("preempted", "Slurm took the machines for a job of higher priority.")
    if end.state in ("NODE_FAIL", "BOOT_FAIL"):
        return failed("node_failed", "A machine of the job failed.")
    if end.state in ("TIMEOUT", "DEADLINE"):
        return failed(
            "time_limit",
            "Slurm ended the job: the partition's time limit, or its own, was reached.",
            "Give the job a `time_limit` that the partition allows, and checkpoints to go on from.",
            "limit",
        )
    if end.state == "OUT_OF_MEMORY":
        return failed(
            "out_of_memory",
            "The job used more memory than Slurm gave it.",
            "Choose a flavor with more memory, or a smaller batch.",
            "user",
        )
    if end.state in ("CANCELLED", "REVOKED"):
        why = f" ({end.reason})" if end.reason not in ("", "None") else ""
        return failed("ended_from_outside", f"The job was cancelled in Slurm{why}, not through the platform.")
    if end.reason == "BadConstraints":
        return failed(
            "slurm_refused",
            "No machine of the cluster can satisfy what the job asks for.",
            "Choose another flavor.",
            "user",
        )
    if end.exit_code == EXIT_NO_PYTHON:
        return failed(
            "no_python",
            "The machine has no Python 3.11 or newer where the pool says.",
            "Set `python` of the pool; `trainshed engine check slurm` looks.",
            "platform",
        )
    if end.exit_code == EXIT_NO_PLATFORM:
        return failed(
            "platform_unreachable",
            "The machine could not reach the platform.",
            "Set public_url and public_obs_url to addresses that the machines reach.",
            "platform",
        )
    if end.exit_code == EXIT_UNFIT:
        return failed(
            "no_room",
            "A machine of the job could not make room for it.",
            "Look at the disk of its temporary folder, or set TRAINSHED_NODE_FOLDER in the pool's `options`.",
        )
    if end.exit_code == EXIT_UNDELIVERED:
        return failed(
            "undelivered",
            f"The job ran to its end, but its machine{host and f' {host}'} could not reach the platform for too long.",
            f"What it made lies there for a week, in trainshed-<uid>/{place} below the pool's node_folder or TMPDIR "
            "(the job's own log in Slurm names it). Fetch it, or rerun the job.",
        )
    if end.exit_code == EXIT_REFUSED:
        return failed("runner_lost", "Another start of this node had its place already.", cause="platform")
    return failed(
        "runner_lost", f"Slurm says {end.state.lower()}, and the runner left no report.", cause="platform"
    )
