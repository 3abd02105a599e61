"""Starts a command once per device of this node, by the rank table, as the launcher of Ascend images does.

    davincirun python train.py --data_url=...

The scheduler's table is read from the folder that RANK_TABLE_FILE names (or taken ready from RANK_TABLE_FILE_V_1_0), and
written anew with ranks. Every process gets JOB_ID, DEVICE_ID, RANK_ID, RANK_SIZE and RANK_TABLE_FILE, a working folder
and a log file of its own; what it says is said here too. The first that fails ends the others, and its code is ours.
Standard library only, for Python 3.7 and later.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

TABLE = "jobstart_hccl.json"
PATIENCE = 1800.0
# Seconds between asking a process to end and insisting.
WAITS = (1, 2, 4, 8)


class TableError(Exception):
    """There is no rank table from which processes can be started."""


def read_table(variables, patience=PATIENCE, pause=time.sleep):
    """The rank table with servers, devices and ranks; waits until the scheduler has completed its own."""
    ready = variables.get("RANK_TABLE_FILE_V_1_0")
    if ready and os.path.isfile(ready):
        return read_json(ready)
    place = variables.get("RANK_TABLE_FILE") or "/user/config"
    path = os.path.join(place, TABLE) if os.path.isdir(place) else place
    waited = 0.0
    while True:
        table = read_json(path)
        if table.get("status") == "completed":
            break
        if waited >= patience:
            raise TableError(f"the rank table {path} was not completed within {patience:.0f} s")
        pause(0.5)
        waited += 0.5
    return table if "server_list" in table else number_ranks(table)


def read_json(path):
    """A table from a file; one that is being written has nothing in it yet."""
    try:
        with open(path) as file:
            table = json.load(file)
    except ValueError:
        return {}
    except OSError as error:
        raise TableError(f"the rank table cannot be read: {error}") from None
    return table if isinstance(table, dict) else {}


def number_ranks(table):
    """The scheduler's table (groups of instances) as a list of servers whose devices carry their ranks."""
    instances = [item for group in table["group_list"] for item in group["instance_list"]]
    instances.sort(key=lambda item: int(item["pod_name"].rpartition("-")[2]))
    servers, rank = [], 0
    for item in instances:
        devices = []
        for device in item["devices"]:
            devices.append(dict(device, rank_id=str(rank)))
            rank += 1
        servers.append({"server_id": item["server_id"], "device": devices, "pod_name": item["pod_name"]})
    return {
        "status": "completed",
        "version": "1.0",
        "server_count": str(len(servers)),
        "server_list": servers,
    }


def find_server(table, variables):
    """This node's entry: by its instance's name, else by its address, else the first."""
    name = variables.get("BATCH_TASK_CURRENT_INSTANCE") or variables.get("MA_CURRENT_INSTANCE_NAME")
    address = variables.get("BATCH_TASK_CURRENT_HOST_IP") or variables.get("MA_CURRENT_IP")
    servers = table["server_list"]
    for key, value in (("pod_name", name), ("server_id", address)):
        for server in servers:
            if value and server.get(key) == value:
                return server
    return servers[0]


def write_table(table, variables):
    """Write the table for the training processes and return its path."""
    home = variables.get("MA_HOME") or variables.get("HOME") or "/home/ma-user"
    folder = os.path.join(home, "rank_table")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, TABLE)
    servers = [
        {key: value for key, value in server.items() if key != "pod_name"} for server in table["server_list"]
    ]
    with open(path + ".new", "w") as file:
        json.dump(dict(table, server_list=servers), file)
    os.replace(path + ".new", path)
    return path


def job_id(variables):
    """The job, as log files name it."""
    virtual = variables.get("MA_VJ_NAME", "").replace("ma-job", "modelarts-job")
    return variables.get("BATCH_JOB_ID") or virtual or os.uname().nodename


def plan_processes(table, path, variables):
    """For every device of this node: its variables, working folder and log file."""
    size = sum(len(server["device"]) for server in table["server_list"])
    mount = variables.get("MA_MOUNT_PATH")
    workspace = (mount or variables.get("HOME") or "/home/ma-user") + "/workspace"
    logs = variables.get("BATCH_TASK_LOG_PATH") or (mount + "/log" if mount else "/tmp/log")
    name = job_id(variables)
    plans = []
    for local, device in enumerate(find_server(table, variables)["device"]):
        rank = device["rank_id"]
        own = dict(variables)
        own.update(
            JOB_ID=name,
            DEVICE_ID=str(local),
            ASCEND_DEVICE_ID=str(local),
            LOCAL_RANK=str(local),
            RANK=rank,
            RANK_ID=rank,
            RANK_SIZE=str(size),
            WORLD_SIZE=str(size),
            RANK_TABLE_FILE=path,
            MINDSPORE_HCCL_CONFIG_PATH=path,
        )
        own.setdefault("HCCL_CONNECT_TIMEOUT", "1800")
        own["ASCEND_PROCESS_LOG_PATH"] = f"{logs}/{name}/ascend/process_log/rank_{rank}"
        log = f"{logs}/{name}-proc-rank-{rank}-device-{local}.txt"
        plans.append((own, f"{workspace}/device{local}", log))
    return plans


class Launch:
    """The processes of this node."""

    def __init__(self, command):
        self.command = command
        self.processes = []
        self.threads = []
        self.voice = threading.Lock()

    def start(self, variables, folder, log):
        """Start one process, and a thread that passes on what it says."""
        os.makedirs(folder, exist_ok=True)
        os.makedirs(os.path.dirname(log), exist_ok=True)
        process = subprocess.Popen(
            self.command,
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.processes.append(process)
        thread = threading.Thread(target=self.pass_on, args=(process, log))
        thread.start()
        self.threads.append(thread)

    def pass_on(self, process, log):
        """Write every line to the process's log file and to our own."""
        with open(log, "ab", 0) as file:
            for line in process.stdout:
                file.write(line)
                with self.voice:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()

    def wait(self):
        """The first code that is not 0, once all processes have ended."""
        while True:
            codes = [process.poll() for process in self.processes]
            failed = [code for code in codes if code]
            if failed:
                self.end()
                return failed[0] if failed[0] > 0 else 128 - failed[0]
            if all(code == 0 for code in codes):
                return 0
            time.sleep(0.1)

    def end(self, *_):
        """Ask every process to end, then insist."""
        for wait in WAITS:
            if not self.send(signal.SIGTERM):
                return
            deadline = time.monotonic() + wait
            while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
                time.sleep(0.05)
        self.send(signal.SIGKILL)

    def send(self, number):
        """Send a signal to those that still run; returns how many there were."""
        running = [process for process in self.processes if process.poll() is None]
        for process in running:
            try:
                os.killpg(process.pid, number)
            except OSError:
                pass
        return len(running)


def main(command):
    """Start, wait, and end as the first that failed."""
    if not command or command[0] in ("-h", "--help"):
        sys.stderr.write("usage: davincirun COMMAND [ARGUMENT]...\n")
        return 2
    variables = dict(os.environ)
    try:
        table = read_table(variables)
        path = write_table(table, variables)
        plans = plan_processes(table, path, variables)
    except (TableError, KeyError, ValueError) as error:
        sys.stderr.write(f"davincirun: {error}\n")
        return 1
    launch = Launch(command)

    def stop(*_):
        launch.send(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    try:
        for plan in plans:
            launch.start(*plan)
    except OSError as error:
        sys.stderr.write(f"davincirun: {error}\n")
        launch.end()
        return 127
    code = launch.wait()
    for thread in launch.threads:
        thread.join(5)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
