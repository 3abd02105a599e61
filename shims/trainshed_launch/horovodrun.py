"""Starts a command once per slot of a host file, as Horovod's own launcher does; used where none is installed.

Processes on this node are started directly, those on others over ssh. Each gets its ranks in HOROVOD_*,
OMPI_COMM_WORLD_* and the plain RANK variables. The first failure ends all of them.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading

USAGE = "usage: horovodrun -np N [-H HOST:SLOTS,... | -hostfile FILE] [-p PORT] [--network-interface IF] COMMAND..."
# Options with a value that change nothing here, and switches that change nothing here.
IGNORED = {
    "--network-interface",
    "--network-interfaces",
    "--nics",
    "--start-timeout",
    "--ssh-identity-file",
    "-i",
    "--output-filename",
    "--config-file",
    "--log-level",
    "--fusion-threshold-mb",
    "--cycle-time-ms",
    "--cache-capacity",
    "--mpi-args",
    "--tcp-port",
    "--num-nccl-streams",
    "--timeline-filename",
}
SWITCHES = {
    "--gloo",
    "--use-gloo",
    "--mpi",
    "--use-mpi",
    "--verbose",
    "--disable-cache",
    "--autotune",
    "--prefix-output-with-timestamp",
    "--no-autotune",
    "--hierarchical-allreduce",
    "--no-hierarchical-allreduce",
    "--tcp",
    "--jsrun",
    "--use-jsrun",
}


def fail(message):
    sys.stderr.write(f"horovodrun: {message}\n{USAGE}\n")
    sys.exit(2)


def read_arguments(arguments):
    options = {"count": 0, "hosts": "", "file": "", "port": "", "verbose": False}
    names = {
        "-np": "count",
        "--num-proc": "count",
        "-n": "count",
        "-H": "hosts",
        "--hosts": "hosts",
        "-hostfile": "file",
        "--hostfile": "file",
        "-p": "port",
        "--ssh-port": "port",
    }
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        option, given, value = arguments[position].partition("=")
        position += 1
        if option in ("-h", "--help"):
            sys.stdout.write(USAGE + "\n")
            sys.exit(0)
        if option in ("-v", "--version"):
            sys.stdout.write("horovodrun (trainshed)\n")
            sys.exit(0)
        if option in SWITCHES:
            continue
        if option not in names and option not in IGNORED:
            fail(f"unknown option {option}")
        if not given:
            if position >= len(arguments):
                fail(f"{option} needs a value")
            value = arguments[position]
            position += 1
        if option in names:
            options[names[option]] = value
    if not str(options["count"]).isdigit() or not int(options["count"]):
        fail("-np must be a number of processes, at least 1")
    if options["port"] and not options["port"].isdigit():
        fail(f"-p must be a port, not '{options['port']}'")
    if position >= len(arguments):
        fail("no command given")
    return options, arguments[position:]


def read_hosts(options):
    """[(host, slots)] in order; this node alone where nothing is named."""
    hosts = []
    if options["file"]:
        try:
            with open(options["file"]) as file:
                lines = file.read().splitlines()
        except OSError as error:
            fail(f"the host file {options['file']} cannot be read: {error.strerror}")
        for line in lines:
            line = line.split("#")[0].strip()
            if line:
                found = re.match(r"(\S+?)(?::(\d+)|\s+slots\s*=\s*(\d+))?$", line)
                if not found:
                    fail(f"'{line}' in {options['file']} is not 'HOST slots=N'")
                hosts.append((found.group(1), int(found.group(2) or found.group(3) or 1)))
    elif options["hosts"]:
        for item in options["hosts"].split(","):
            host, _, slots = item.partition(":")
            hosts.append((host, int(slots) if slots.isdigit() else 1))
    return hosts or [("localhost", int(options["count"]))]


def is_here(host):
    if host in ("localhost", "127.0.0.1", socket.gethostname()):
        return True
    own = os.environ.get("POD_IP") or socket.gethostbyname(socket.gethostname())
    try:
        return socket.gethostbyname(host) == own
    except OSError:
        return False


def place(hosts, count):
    """[(host, local rank, local size, cross rank, cross size)] by rank."""
    available = sum(slots for _, slots in hosts)
    if available < count:
        fail(f"{count} processes were asked for and the hosts have {available} slots")
    used, left = [], count
    for host, slots in hosts:
        if left > 0:
            used.append((host, min(slots, left)))
            left -= slots
    places = []
    for index, (host, size) in enumerate(used):
        for local in range(size):
            peers = [number for number, (_, other) in enumerate(used) if other > local]
            places.append((host, local, size, peers.index(index), len(peers)))
    return places


def variables_of(rank, size, spot):
    _, local, local_size, cross, cross_size = spot
    values = {
        "RANK": rank,
        "SIZE": size,
        "LOCAL_RANK": local,
        "LOCAL_SIZE": local_size,
        "CROSS_RANK": cross,
        "CROSS_SIZE": cross_size,
    }
    variables = {"HOROVOD_" + name: str(value) for name, value in values.items()}
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"):
        variables["OMPI_COMM_WORLD_" + name] = str(values[name])
    variables.update(
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(local_size),
            "HOROVOD_HOSTNAME": spot[0],
        }
    )
    return variables


def start(rank, size, spot, command, port):
    variables = variables_of(rank, size, spot)
    if is_here(spot[0]):
        return subprocess.Popen(
            command,
            env=dict(os.environ, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(variables.items()))
    words = " ".join(shlex.quote(word) for word in command)
    remote = f"cd {shlex.quote(os.getcwd())} 2>/dev/null; exec env {exports} {words}"
    ssh = ["ssh", "-tt" if sys.stdin.isatty() else "-T", "-o", "BatchMode=yes"] + (
        ["-p", port] if port else []
    )
    return subprocess.Popen(
        ssh + [spot[0], remote],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def relay(rank, stream, lock):
    prefix = f"[1,{rank}]<stdout>:".encode()
    for line in iter(stream.readline, b""):
        with lock:
            sys.stdout.buffer.write(prefix + line if line.endswith(b"\n") else prefix + line + b"\n")
            sys.stdout.buffer.flush()


def end(processes, how):
    for process in processes:
        if process.poll() is None:
            try:
                os.killpg(process.pid, how)
            except OSError:
                pass


def main():
    options, command = read_arguments(sys.argv[1:])
    count = int(options["count"])
    places = place(read_hosts(options), count)
    processes = [start(rank, count, spot, command, options["port"]) for rank, spot in enumerate(places)]
    lock = threading.Lock()
    relays = [
        threading.Thread(target=relay, args=(rank, process.stdout, lock), daemon=True)
        for rank, process in enumerate(processes)
    ]
    for thread in relays:
        thread.start()
    ended = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: (end(processes, signal.SIGTERM), ended.set()))
    code, waiting = 0, set(range(count))
    while waiting:
        for rank in sorted(waiting):
            found = processes[rank].poll()
            if found is None:
                continue
            waiting.discard(rank)
            if found and not code:
                code = found if found > 0 else 128 - found
                sys.stderr.write(
                    f"horovodrun: rank {rank} on {places[rank][0]} ended with {code}; ending the others\n"
                )
                end(processes, signal.SIGTERM)
                killer = threading.Timer(10, end, (processes, signal.SIGKILL))
                killer.daemon = True
                killer.start()
        ended.wait(0.05)
    for thread in relays:
        thread.join(5)
    sys.exit(code)


if __name__ == "__main__":
    main()
