"""How a rank leaves MindSpore's cluster: after everything else, and without losing the good end of its script.

MindSpore says farewell in native code, at the interpreter's exit. Its main thread frees a connection as soon as the
scheduler has answered, while its network thread may still want to read from it. On a busy machine one rank in a hundred
dies of that by SIGSEGV, with a script behind it that had ended well. So the farewell comes last, when no handler of
the script's own is left to be lost, and a crash in it ends the process with the status 0, and a line in the log. That
is done only where it is certain that the script ended well; every other end keeps its status.
"""

import atexit
import functools
import signal
import subprocess
import sys
import threading
import types

__all__ = ["has_failed", "leave", "postpone", "prepare"]

_CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT")
# Long enough for a profiler to write its report; a process that hangs after its script is of no use to anybody.
_LONGEST_FAREWELL = 600
_MESSAGE = (
    "[trainshed] this process was ended by MindSpore's own farewell to its cluster. The script had ended well before: "
    "its end counts"
)
# What stands in the code beside the steps that were written.
_NO_STEPS = ("CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL")
_UNKNOWN = object()
_state = {"frame": None, "main": None, "exit": _UNKNOWN, "postpones": False}
_farewells = []


def prepare():
    """Before MindSpore loads: watch how the script ends, and learn what MindSpore wants to do then."""
    if _state["frame"] is None:
        _state["frame"], _state["main"] = _outermost_frame(), _main_frame()
        sys.exit = _remembering(sys.exit)
        atexit.register = _watching(atexit.register)


def postpone():
    """From here on, MindSpore's native farewell waits for `leave`."""
    _state["postpones"] = True


def has_failed():
    """Whether the script is known to have ended with an error."""
    return (
        hasattr(sys, "last_value")
        or hasattr(sys, "last_exc")
        or _state["exit"] not in (_UNKNOWN, None, 0, False)
    )


def leave():
    """What was postponed, as the last thing that this process does."""
    if not _farewells:
        return
    safeguard = _Safeguard()
    if _has_ended_well():
        safeguard.arm()
    try:
        while _farewells:
            _farewells.pop(0)()
    finally:
        safeguard.disarm()


def _outermost_frame():
    frame = sys._current_frames().get(threading.main_thread().ident)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _main_frame():
    """The frame of the program itself, if nothing stands around it that could still catch its end."""
    frame = sys._current_frames().get(threading.main_thread().ident)
    own = getattr(sys.modules.get("__main__"), "__dict__", None)
    while frame is not None and (frame.f_globals is not own or frame.f_code.co_name != "<module>"):
        frame = frame.f_back
    around = frame and frame.f_back
    while around is not None:
        # `python -m` runs a module by these.
        if around.f_globals.get("__name__") != "runpy":
            return None
        around = around.f_back
    return frame


def _remembering(leave_by):
    @functools.wraps(leave_by)
    def remembering(*code):
        _state["exit"] = code[0] if code else None
        leave_by(*code)

    return remembering


def _watching(register):
    @functools.wraps(register)
    def watching(function, *arguments, **options):
        if _is_farewell(function):
            register(_now_or_last, functools.partial(function, *arguments, **options))
            return function
        return register(function, *arguments, **options)

    return watching


def _is_farewell(function):
    """Whether this is a native function of MindSpore's own: one without a module, registered while it loads."""
    loading = getattr(sys.modules.get("mindspore"), "__spec__", None)
    return (
        getattr(loading, "_initializing", False)
        and isinstance(function, types.BuiltinFunctionType)
        and not isinstance(function.__self__, types.ModuleType)
    )


def _now_or_last(farewell):
    if _state["postpones"]:
        _farewells.append(farewell)
    else:
        farewell()


def _has_ended_well():
    """True only where nothing else is possible: `raise SystemExit(code)` leaves no trace but where it was raised."""
    if has_failed():
        return False
    if _state["exit"] is not _UNKNOWN:
        return True
    frame = _state["frame"]
    if frame is None or frame.f_lasti < 0:
        return False
    import opcode

    last = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
    return last.startswith("RETURN_") or _has_raised_a_good_exit(_state["main"])


def _has_raised_a_good_exit(frame):
    """Whether a program's last step was `raise SystemExit`, without a code, or with one that is written there: 0."""
    if frame is None or "SystemExit" in frame.f_globals:
        return False
    import dis

    steps = []
    for step in dis.get_instructions(frame.f_code):
        if not step.opname.startswith(_NO_STEPS):
            steps.append(step)
        if step.offset == frame.f_lasti:
            break
    if not steps or steps.pop().opname != "RAISE_VARARGS":
        return False
    if steps and steps[-1].opname.startswith("CALL"):
        steps.pop()
        code = steps[-1].argval if steps else None
        is_code = bool(steps) and steps[-1].opname.startswith(("LOAD_CONST", "LOAD_SMALL_INT"))
        if is_code and (code is None or (isinstance(code, int) and code == 0)):
            steps.pop()
    return bool(steps) and steps[-1].opname == "LOAD_NAME" and steps[-1].argval == "SystemExit"


class _Safeguard:
    """Makes a crash end this process with the status 0. No Python may run then, nor anything else of the process."""

    def __init__(self):
        self._former = {}
        self._witness = None

    def arm(self):
        """From here on a crash is no failure."""
        try:
            import ctypes

            libc = ctypes.CDLL(None)
            # `quick_exit` as handler of a signal calls what is registered for it, here `_exit`, with 0 as argument.
            finish, at_finish, end = libc.quick_exit, libc["__cxa_at_quick_exit"], libc._exit
            sys.stdout.flush()
            sys.stderr.flush()
            libc.fflush(None)
            if at_finish(end, None) != 0:
                return
            self._witness = _call_witness()
            self._libc = libc
            for name in _CRASHES:
                self._set(getattr(signal, name), finish)
            if not signal.getitimer(signal.ITIMER_REAL)[0]:
                self._set(signal.SIGALRM, finish)
                signal.alarm(_LONGEST_FAREWELL)
        except (AttributeError, ImportError, OSError, ValueError):
            pass  # no such functions in this C library, or a standard output that is gone: no safeguard

    def _set(self, number, handler):
        import ctypes

        former = ctypes.create_string_buffer(1024)
        self._libc.sigaction(number, None, former)
        self._former[number] = former
        self._libc.signal(number, handler)

    def disarm(self):
        """From here on all is as it was."""
        if signal.SIGALRM in self._former:
            signal.alarm(0)
        for number, former in self._former.items():
            self._libc.sigaction(number, former, None)
        if self._witness is not None:
            try:
                self._witness.communicate(b"\n", timeout=10)
            except (OSError, ValueError, subprocess.SubprocessError):
                pass


def _call_witness():
    """A process that writes the line if this one ends before it says that all is well."""
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", 'read -r word || echo "$0" >&2', _MESSAGE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
    except OSError:
        return None
