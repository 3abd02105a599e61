from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.model.engines import EnginePreset
from trainshed.model.errors import InvalidInput, TrainshedError
from trainshed.model.launch_plan import Environment
from trainshed.runner.environment import build
from trainshed.runner.environment.build import EnvironmentPaths, ensure_environment
from trainshed.runner.environment.failure import EnvironmentFailed
from trainshed.runner.environment.interpreter import find_interpreter
from trainshed.runner.environment.resolution import digest_environment, resolve
from trainshed.runner.shims import SHIMS_PATH, shims_folder

Log = Callable[[bytes], None]
JOB_UID = 234567

# Run in a process of its own, so that it can be killed or raced.
BUILDER = """
import sys, json
from pathlib import Path
from trainshed.model.launch_plan import Environment
from trainshed.runner.environment import build
from trainshed.runner.environment.build import ensure_environment
environment = Environment("python", sys.argv[2], tuple(json.loads(sys.argv[3])), sys.argv[4])
def log(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
print("PATH", ensure_environment(environment, Path(sys.argv[1]), log).path_on_host)
"""


def exact(*packages: str) -> Environment:
    interpreter = find_interpreter()
    return Environment("python", interpreter.version, packages, digest_environment(interpreter, packages))


def run_inside(paths: EnvironmentPaths, *command: str) -> subprocess.CompletedProcess[str]:
    """Start a program as a job would: the environment at its fixed path, another user, nothing of the host's."""
    prefix = str(paths.interpreter_prefix)
    arguments = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"]
    arguments += ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc"]
    arguments += ["--dev", "/dev", "--ro-bind", prefix, prefix, "--tmpfs", "/tmp"]
    arguments += ["--ro-bind", str(shims_folder()), SHIMS_PATH]
    arguments += ["--ro-bind", str(paths.path_on_host), paths.target, "--chdir", "/", "--clearenv", *command]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)


def start_builder(folder: Path, environment: Environment, output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-c", BUILDER, str(folder), environment.python]
            + [json.dumps(environment.packages), environment.digest],
            stdout=stream,
            stderr=subprocess.STDOUT,
        )


def wait_for(claim: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def leftovers(folder: Path) -> list[str]:
    return [
        str(path)
        for place in ("building", "private", "requests")
        for path in (folder / "work" / place).glob("*")
    ]


def test_an_engine_without_packages_has_python_and_pip_and_needs_no_index(
    tmp_path: Path, log: Log, lines: list[str], wheelhouse: Any
) -> None:
    built = []
    environment = resolve(EnginePreset("python"), folder=tmp_path / "e")
    paths = ensure_environment(environment, tmp_path / "e", log, on_build=lambda: built.append(1))
    assert paths.target == "/opt/environment"
    answer = run_inside(paths, "/opt/environment/bin/pip", "--version")
    assert answer.returncode == 0, answer.stderr
    assert "/opt/environment/" in answer.stdout
    assert ensure_environment(environment, tmp_path / "e", log, on_build=lambda: built.append(2)) == paths
    assert built == [1]
    assert not leftovers(tmp_path / "e")


def test_packages_are_installed_for_everybody_with_scripts_that_start(
    tmp_path: Path, log: Log, lines: list[str], wheelhouse: Any
) -> None:
    wheelhouse.add_wheel("alpha", requires="beta")
    wheelhouse.add_wheel("beta", "2.5", module="VERSION = '2.5'\ndef main(): print('beta runs')\n")
    environment = resolve(EnginePreset("python"), "alpha\n", folder=tmp_path / "e", log=log)
    assert environment.packages == ("alpha==1.0", "beta==2.5")
    paths = ensure_environment(environment, tmp_path / "e", log, uid=JOB_UID)
    program = "import alpha, beta, sys; print(alpha.VERSION, beta.VERSION, sys.prefix)"
    answer = run_inside(paths, "/opt/environment/bin/python", "-c", program)
    assert answer.stdout == "1.0 2.5 /opt/environment\n"
    assert run_inside(paths, "/opt/environment/bin/beta-tool").stdout == "beta runs\n"
    for path, folders, files in os.walk(paths.path_on_host):
        for name in (*folders, *files):
            status = os.lstat(os.path.join(path, name))
            if not os.path.islink(os.path.join(path, name)):
                assert status.st_mode & 0o004, name
                assert not status.st_mode & 0o022, name
    site_packages = next((paths.path_on_host / "lib").glob("python*/site-packages"))
    assert list((site_packages / "__pycache__").glob("beta.*.pyc")), "byte code is made once, for all jobs"
    assert any(" + alpha==1.0" in line for line in lines)
    cached = list((tmp_path / "e/work/cache").rglob("beta.py"))
    assert cached[0].stat().st_ino == (site_packages / "beta.py").stat().st_ino, "linked, not copied"


def test_the_stand_in_for_log_metric_gives_way_to_a_package_of_the_same_name(
    tmp_path: Path, log: Log, wheelhouse: Any
) -> None:
    plain = ensure_environment(exact(), tmp_path / "e", log)
    program = "import trainshed; print(trainshed.__file__, trainshed.log_metric('loss', 1))"
    assert run_inside(plain, "/opt/environment/bin/python", "-c", program).stdout == (
        f"{SHIMS_PATH}/trainshed/__init__.py False\n"
    )
    wheelhouse.add_wheel("trainshed", module="OWN = True\n")
    own = ensure_environment(exact("trainshed==1.0"), tmp_path / "e", log)
    answer = run_inside(own, "/opt/environment/bin/python", "-c", "import trainshed; print(trainshed.OWN)")
    assert answer.stdout == "True\n"


def test_a_missing_package_is_named(tmp_path: Path, log: Log, lines: list[str], wheelhouse: Any) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        ensure_environment(exact("no-such-thing==7.7"), tmp_path / "e", log)
    assert caught.value.package == "no-such-thing"
    assert "no-such-thing" in caught.value.message
    assert "\n" not in caught.value.message
    assert any("no-such-thing" in line for line in lines)
    assert not leftovers(tmp_path / "e")
    assert not (tmp_path / "e" / exact("no-such-thing==7.7").digest).exists()


def test_a_build_that_fails_names_the_package_and_its_last_words(
    tmp_path: Path, log: Log, lines: list[str], wheelhouse: Any
) -> None:
    wheelhouse.add_source("broken", "raise RuntimeError('the moon is not full')")
    with pytest.raises(EnvironmentFailed) as caught:
        ensure_environment(exact("broken==1.0"), tmp_path / "e", log)
    assert caught.value.package == "broken"
    assert "the moon is not full" in caught.value.message
    assert "the moon is not full" in "".join(lines)
    assert not leftovers(tmp_path / "e")


def test_code_of_a_package_reaches_neither_the_host_nor_its_network(
    tmp_path: Path, log: Log, wheelhouse: Any
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("planted")
    secret.chmod(0o644)
    tmp_path.chmod(0o755)
    answered = []
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]

    def serve() -> None:
        while True:
            try:
                client = server.accept()[0]
            except OSError:
                return
            answered.append(1)
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    payload = f"""
import json, os, socket
found = {{}}
def attempt(name, action):
    try:
        found[name] = str(action())
    except Exception as error:
        found[name] = "failed " + type(error).__name__
def read(path):
    with open(path) as file:
        return file.read()
def through_proxy(target):
    client = socket.create_connection(("127.0.0.1", 3128), timeout=10)
    client.sendall(("CONNECT %s HTTP/1.1\\r\\n\\r\\n" % target).encode())
    return client.recv(100).split(b"\\r\\n")[0].decode()
attempt("secret", lambda: read({str(secret)!r}))
attempt("shadow", lambda: read("/etc/shadow"))
attempt("loopback", lambda: socket.create_connection(("127.0.0.1", {port}), timeout=5))
attempt("proxied", lambda: through_proxy("127.0.0.1:{port}"))
attempt("proxied_web", lambda: through_proxy("127.0.0.1:443"))
attempt("proxied_mapped", lambda: through_proxy("[::ffff:127.0.0.1]:443"))
attempt("metadata", lambda: through_proxy("169.254.169.254:80"))
attempt("processes", lambda: sum(1 for name in os.listdir("/proc") if name.isdigit()) < 20)
attempt("uid", os.getuid)
attempt("root", lambda: os.setuid(0))
attempt("shared_cache", lambda: sorted(os.listdir("/shed")))
attempt("capabilities", lambda: [line for line in read("/proc/self/status").splitlines() if line.startswith("CapEff")][0])
result["text"] = json.dumps(found)
"""
    wheelhouse.add_source("curious", payload)
    paths = ensure_environment(exact("curious==1.0"), tmp_path / "e", log, uid=JOB_UID)
    server.close()
    answer = run_inside(paths, "/opt/environment/bin/python", "-c", "import curious; print(curious.TEXT)")
    found = json.loads(answer.stdout)
    assert found["secret"] == "failed FileNotFoundError"
    assert found["shadow"].startswith("failed")
    assert found["loopback"].startswith("failed")
    assert [
        found[name].split(" ")[1] for name in ("proxied", "proxied_web", "proxied_mapped", "metadata")
    ] == ["403"] * 4
    assert not answered
    assert found["processes"] == "True"
    assert found["capabilities"].split()[-1].strip("0") == ""
    assert "cache" in found["shared_cache"] and "building" not in found["shared_cache"]
    if os.geteuid() == 0:
        assert found["uid"] == str(JOB_UID)
        assert found["root"] == "failed PermissionError"
        site_packages = next((paths.path_on_host / "lib").glob("python*/site-packages"))
        assert (site_packages / "curious.py").stat().st_uid == 0
    # What was built by foreign code is not in the cache that others install from.
    assert not list((tmp_path / "e/work/cache").rglob("curious*.whl"))
    assert not list((tmp_path / "e/work/cache").rglob("curious.py"))


def test_no_package_is_built_beside_the_password_of_an_index(
    tmp_path: Path, log: Log, lines: list[str], wheelhouse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheelhouse.add_source("curious", "result['text'] = 'ran'")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://someone:hunter2secret@index.invalid/simple")
    with pytest.raises(EnvironmentFailed) as caught:
        ensure_environment(exact("curious==1.0"), tmp_path / "e", log)
    assert "password" in caught.value.message
    assert "hunter2secret" not in "".join(lines) + str(caught.value)


def test_two_builders_of_one_environment_build_it_once(tmp_path: Path, wheelhouse: Any) -> None:
    gate = wheelhouse.path / "go"
    payload = f"import os, time\nfor _ in range(600):\n    if os.path.exists({str(gate)!r}): break\n    time.sleep(0.1)\n"
    wheelhouse.add_source("slow", payload)
    environment, folder = exact("slow==1.0"), tmp_path / "e"
    outputs = [tmp_path / "first.log", tmp_path / "second.log"]
    first = start_builder(folder, environment, outputs[0])
    wait_for(lambda: "built from source" in outputs[0].read_text())
    second = start_builder(folder, environment, outputs[1])
    wait_for(lambda: "waiting" in outputs[1].read_text())
    gate.touch()
    assert (first.wait(60), second.wait(60)) == (0, 0), [output.read_text() for output in outputs]
    assert "Building the environment" in outputs[0].read_text()
    assert "Building the environment" not in outputs[1].read_text()
    assert outputs[0].read_text().splitlines()[-1] == outputs[1].read_text().splitlines()[-1]
    assert not leftovers(folder)


def test_a_killed_builder_leaves_no_process_and_nothing_that_harms_the_next(
    tmp_path: Path, log: Log, wheelhouse: Any
) -> None:
    gate = wheelhouse.path / "go"
    payload = f"import os, time\nif not os.path.exists({str(gate)!r}): time.sleep(300)\n"
    wheelhouse.add_source("slow", payload)
    environment, folder = exact("slow==1.0"), tmp_path / "e"
    output = tmp_path / "first.log"
    first = start_builder(folder, environment, output)
    wait_for(lambda: "Building slow" in output.read_text())
    assert processes_with(str(folder))
    first.send_signal(signal.SIGKILL)
    first.wait(90)
    wait_for(lambda: not processes_with(str(folder)))
    assert not (folder / environment.digest).exists()
    assert leftovers(folder)
    gate.touch()
    paths = ensure_environment(environment, folder, log)
    assert run_inside(paths, "/opt/environment/bin/python", "-c", "import slow").returncode == 0
    assert not leftovers(folder)


def processes_with(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in command:
                found.append(int(entry.name))
    return found


def test_a_stop_ends_an_installation_at_once(
    tmp_path: Path, log: Log, lines: list[str], wheelhouse: Any
) -> None:
    wheelhouse.add_source("slow", "import time; time.sleep(300)")
    with pytest.raises(TrainshedError) as caught:
        ensure_environment(
            exact("slow==1.0"),
            tmp_path / "e",
            log,
            should_stop=lambda: any("Building slow" in line for line in lines),
        )
    assert caught.value.code == "stopped"
    assert not leftovers(tmp_path / "e")
    wait_for(lambda: not processes_with(str(tmp_path / "e")))


def test_an_environment_whose_interpreter_is_gone_is_built_again(
    tmp_path: Path, log: Log, wheelhouse: Any
) -> None:
    paths = ensure_environment(exact(), tmp_path / "e", log)
    marker = paths.path_on_host / ".trainshed.json"
    facts = json.loads(marker.read_text())
    marker.write_text(json.dumps({**facts, "executable": "/nowhere/python"}))
    again = ensure_environment(exact(), tmp_path / "e", log)
    assert json.loads((again.path_on_host / ".trainshed.json").read_text()) == facts


def test_a_digest_cannot_lead_out_of_the_folder(tmp_path: Path, log: Log) -> None:
    with pytest.raises(InvalidInput):
        ensure_environment(Environment("python", "", (), "../../etc"), tmp_path / "e", log)


def test_without_a_sandbox_scripts_find_their_own_place(
    tmp_path: Path, log: Log, wheelhouse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheelhouse.add_wheel("beta", module="def main(): print('beta runs')\n")
    assert ensure_environment(exact(), tmp_path / "e", log, sandboxed=False).target == "/opt/environment"
    monkeypatch.setattr(build, "can_sandbox", lambda: False)
    paths = ensure_environment(exact("beta==1.0"), tmp_path / "e", log, sandboxed=False)
    assert paths.target == str(paths.path_on_host)
    answer = subprocess.run(
        [f"{paths.target}/bin/beta-tool"], capture_output=True, text=True, timeout=120, check=True
    )
    assert answer.stdout == "beta runs\n"


def test_an_installation_leaves_no_thread_behind(tmp_path: Path, log: Log, wheelhouse: Any) -> None:
    before = set(threading.enumerate())
    payload = (
        "import socket\nresult['text'] = str(socket.create_connection(('127.0.0.1', 3128)).sendall(b'GET '))"
    )
    wheelhouse.add_source("talker", payload)
    ensure_environment(exact("talker==1.0"), tmp_path / "e", log)
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
def test_real_packages_come_from_the_index_of_this_machine(tmp_path: Path, log: Log) -> None:
    environment = resolve(EnginePreset("python"), "six\nidna>=3\n", folder=tmp_path / "e", log=log)
    assert [package.split("==")[0] for package in environment.packages] == ["idna", "six"]
    paths = ensure_environment(environment, tmp_path / "e", log)
    program = "import six, idna; print(idna.encode('ドメイン').decode(), six.__file__)"
    answer = run_inside(paths, "/opt/environment/bin/python", "-X", "utf8", "-c", program)
    assert answer.stdout.startswith("xn--eckwd4c7c /opt/environment/lib/")
