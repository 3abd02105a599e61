"""How a rank leaves MindSpore's cluster, with a farewell that crashes, and with every way in which a script can end."""

from __future__ import annotations

from pathlib import Path

import pytest

from job_process import Run, make_environment, runner_of

# A farewell as MindSpore has it: a native function without a module, registered while the package loads.
MINDSPORE = {
    "mindspore/__init__.py": """
        import atexit, collections, faulthandler, os
        def farewell():
            os.write(1, b"farewell\\n")
            getattr(faulthandler, os.environ.get("CRASH", ""), bool)()
            yield
        atexit.register(collections.deque(maxlen=0).extend, farewell())
        """,
    "mindspore/communication/__init__.py": "from mindspore.communication.management import init\n",
    "mindspore/communication/management.py": "def init(): pass\n",
}
SCRIPT = """
import atexit
atexit.register(lambda: print("the script's first handler"))
import mindspore
from mindspore.communication import init
atexit.register(lambda: print("the script's second handler"))
init()
print("trained", end=" ")
"""
HANDLERS = "trained the script's second handler\nthe script's first handler\n"
WORKER = {"TRAINSHED_REHEARSAL": "1", "MS_ROLE": "MS_WORKER", "MS_NODE_ID": "1"}
LINE = "[trainshed] this process was ended by MindSpore's own farewell to its cluster."


@pytest.fixture(scope="module", params=["", "3.7", "3.13"], ids=lambda version: version or "own")
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment as jobs have it."""
    return make_environment(request.param, tmp_path_factory.mktemp("environment"))


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Run:
    """Run a script with a MindSpore that has nothing but a farewell."""
    return runner_of(python, tmp_path)


@pytest.mark.parametrize("crash", ["_sigsegv", "_sigabrt"])
@pytest.mark.parametrize("end", ["", "\nimport sys; sys.exit()", "\nimport sys; sys.exit(0)"])
def test_a_crash_of_the_farewell_takes_nothing_from_a_script_that_ended_well(
    run: Run, end: str, crash: str
) -> None:
    done = run("train.py", modules={**MINDSPORE, "train.py": SCRIPT + end}, CRASH=crash, **WORKER)
    assert (done.returncode, done.stdout) == (0, HANDLERS + "farewell\n"), done.stderr
    assert LINE in done.stderr


def test_a_module_that_is_run_as_a_program_counts_as_well(run: Run) -> None:
    done = run("-m", "train", modules={**MINDSPORE, "train.py": SCRIPT}, CRASH="_sigsegv", **WORKER)
    assert (done.returncode, done.stdout) == (0, HANDLERS + "farewell\n"), done.stderr


@pytest.mark.parametrize("how", [("train.py",), ("-m", "train"), ("-m", "package")], ids=" ".join)
@pytest.mark.parametrize("end", ["raise SystemExit", "raise SystemExit()", "raise SystemExit(0)"])
def test_an_exit_that_is_raised_with_a_good_code_is_a_good_end(
    run: Run, how: tuple[str, ...], end: str
) -> None:
    modules = {**MINDSPORE, "train.py": f"{SCRIPT}\n{end}\n", "package/__init__.py": ""}
    modules["package/__main__.py"] = f"{SCRIPT}\nif __name__ == '__main__':\n    {end}\n"
    done = run("-u", *how, modules=modules, **WORKER)
    assert (done.returncode, done.stdout, done.stderr) == (0, HANDLERS + "farewell\n", "")
    crashed = run("-u", *how, modules=modules, CRASH="_sigsegv", **WORKER)
    assert (crashed.returncode, crashed.stdout) == (0, HANDLERS + "farewell\n"), crashed.stderr
    assert LINE in crashed.stderr


OUTER = """
import runpy
try:
    runpy.run_module("package", run_name="__main__")
except SystemExit:
    pass
raise SystemExit(3)
"""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        # Its code is nowhere to be read.
        (SCRIPT + "\nraise SystemExit(int('0'))\n", 0),
        (SCRIPT + "\nraise SystemExit(False or 3)\n", 3),
        (SCRIPT + "\nraise SystemExit(0.0)\n", 1),
        # Somebody else's good end is not that of the program.
        (OUTER, 3),
    ],
    ids=["computed", "chosen", "no code", "caught"],
)
def test_where_a_good_end_is_not_certain_a_crash_is_a_crash(run: Run, script: str, code: int) -> None:
    modules = {**MINDSPORE, "train.py": script, "package/__init__.py": ""}
    modules["package/__main__.py"] = SCRIPT + "\nraise SystemExit(0)\n"
    done = run("-u", "train.py", modules=modules, **WORKER)
    assert done.returncode == code, done.stderr
    crashed = run("-u", "train.py", modules=modules, CRASH="_sigsegv", **WORKER)
    assert crashed.returncode < 0 and LINE not in crashed.stderr


@pytest.mark.parametrize("how", [("train.py",), ("-m", "train")], ids=["script", "module"])
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("raise ValueError('no')", 1),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('no')", 1),
        ("raise SystemExit(3)", 3),
        ("exit(3)", 3),
    ],
)
def test_a_script_that_fails_has_failed(run: Run, how: tuple[str, ...], end: str, code: int) -> None:
    modules = {**MINDSPORE, "train.py": f"{SCRIPT}\n{end}\n"}
    done = run("-u", *how, modules=modules, **WORKER)
    assert (done.returncode, done.stdout) == (code, HANDLERS + "farewell\n"), done.stderr
    crashed = run("-u", *how, modules=modules, CRASH="_sigsegv", **WORKER)
    assert crashed.returncode < 0
    assert LINE not in crashed.stderr


def test_a_farewell_that_ends_well_changes_nothing(run: Run) -> None:
    modules = {**MINDSPORE, "train.py": SCRIPT, "later.py": SCRIPT + "raise SystemExit(7)"}
    done = run("train.py", modules=modules, **WORKER)
    assert (done.returncode, done.stdout, done.stderr) == (0, HANDLERS + "farewell\n", "")
    done = run("-u", "later.py", **WORKER)
    assert (done.returncode, done.stdout, done.stderr) == (7, HANDLERS + "farewell\n", "")


def test_without_a_cluster_everything_keeps_its_place(run: Run) -> None:
    modules = {**MINDSPORE, "train.py": SCRIPT}
    expected = "trained the script's second handler\nfarewell\nthe script's first handler\n"
    done = run("-u", "train.py", modules=modules, TRAINSHED_REHEARSAL="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    crashed = run("-u", "train.py", CRASH="_sigsegv", TRAINSHED_REHEARSAL="1")
    assert crashed.returncode < 0


def test_a_crash_of_the_script_itself_is_a_crash(run: Run) -> None:
    script = SCRIPT + "import faulthandler\nfaulthandler._sigsegv()\n"
    done = run("train.py", modules={**MINDSPORE, "train.py": script}, **WORKER)
    assert done.returncode < 0
    assert LINE not in done.stderr
