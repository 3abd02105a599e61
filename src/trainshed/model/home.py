"""Where things lie in the platform's home folder. Path arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Home", "RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """The folder of one node of one attempt: all that a runner reads and writes on its machine."""

    path: Path

    @property
    def launch(self) -> Path:
        """The launch plan (NodeLaunch as JSON), written before the runner starts."""
        return self.path / "launch.json"

    @property
    def site(self) -> Path:
        """Facts of the site that are not part of the plan (store, ports, sandbox), as JSON."""
        return self.path / "site.json"

    @property
    def secrets(self) -> Path:
        """Values of secret variables; removed when the node has ended."""
        return self.path / "secrets.json"

    @property
    def lock(self) -> Path:
        """Held by the runner as long as it lives: the proof of life."""
        return self.path / "runner.lock"

    @property
    def status(self) -> Path:
        """The runner's latest report (NodeReport as JSON), replaced by fsync + rename."""
        return self.path / "status.json"

    @property
    def stop(self) -> Path:
        """Its existence asks the runner to stop; its content is the reason."""
        return self.path / "stop"

    @property
    def code_here(self) -> Path:
        """Its existence says that the code came with the plan, and lies where the job will see it."""
        return self.path / "code.here"

    @property
    def claim(self) -> Path:
        """Of a node elsewhere: which process on which machine has taken it (JSON)."""
        return self.path / "claim.json"

    @property
    def heard(self) -> Path:
        """Of a node elsewhere: its time tells when that process was last heard."""
        return self.path / "heard"

    @property
    def report_lock(self) -> Path:
        """Of a node elsewhere: held by whoever replaces its report, the runner's or one in its place."""
        return self.path / "report.lock"

    @property
    def platform_log(self) -> Path:
        """What the platform says to the job's owner: staging, installing, uploading, endings."""
        return self.path / "logs" / "platform.log"

    def rank_log(self, rank: int) -> Path:
        """The spool file into which a rank writes directly."""
        return self.path / "logs" / f"rank-{rank}.log"

    @property
    def file_logs(self) -> Path:
        """Copies of the logs that launchers write into files."""
        return self.path / "logs" / "files"

    def file_log(self, name: str) -> Path:
        """The copy of one such log."""
        return self.file_logs / name

    @property
    def metrics(self) -> Path:
        """Metric points of the job, one JSON object per line."""
        return self.path / "metrics.jsonl"

    @property
    def system_metrics(self) -> Path:
        """CPU, memory and device use of the node, one JSON object per line."""
        return self.path / "system.jsonl"

    @property
    def ssh_gate(self) -> Path:
        """The socket through which the platform reaches the node's ssh server."""
        return self.path / "ssh.sock"

    @property
    def ssh_off(self) -> Path:
        """Why the node does not answer ssh, where its plan wanted that."""
        return self.path / "ssh.off"

    @property
    def runner_log(self) -> Path:
        """The runner's own diagnostics, for administrators."""
        return self.path / "runner.log"

    @property
    def root(self) -> Path:
        """Folders that become visible inside the sandbox."""
        return self.path / "root"


@dataclass(frozen=True)
class Home:
    """The platform's home folder."""

    path: Path

    @property
    def database_url(self) -> str:
        """The embedded database."""
        return f"sqlite:///{self.path / 'trainshed.sqlite'}"

    @property
    def settings(self) -> Path:
        """The administrator's settings file."""
        return self.path / "settings.toml"

    @property
    def marker(self) -> Path:
        """Which version of the platform made this home, and the format of what lies in it."""
        return self.path / "home.json"

    @property
    def lock(self) -> Path:
        """Held by the one platform that runs in this home; its content is the process id."""
        return self.run / "up.lock"

    @property
    def state(self) -> Path:
        """What the running platform's supervisor says about its processes, as JSON."""
        return self.run / "platform.json"

    @property
    def fork_socket(self) -> Path:
        """Where the fork server listens."""
        return self.run / "runner.sock"

    @property
    def store(self) -> Path:
        """The embedded object store."""
        return self.path / "store"

    @property
    def external_store(self) -> Path:
        """Which external object store this home uses, with its keys; absent where the store is embedded."""
        return self.path / "store.json"

    @property
    def jobs(self) -> Path:
        """Run folders."""
        return self.path / "jobs"

    @property
    def environments(self) -> Path:
        """Built Python environments, one folder per digest."""
        return self.path / "environments"

    @property
    def input_cache(self) -> Path:
        """Trees of inputs that were staged, one folder per digest."""
        return self.path / "cache" / "inputs"

    def kept_folders(self, workspace_id: str) -> Path:
        """The homes of a workspace's users and its data folder, as jobs of the dialect `apulis` see them."""
        return self.path / "kept" / workspace_id

    @property
    def run(self) -> Path:
        """Locks, sockets and process ids of the running platform."""
        return self.path / "run"

    @property
    def logs(self) -> Path:
        """Logs of the platform's own processes."""
        return self.path / "logs"

    @property
    def master_key(self) -> Path:
        """The key that encrypts secrets at rest."""
        return self.path / "master.key"

    @property
    def tls(self) -> Path:
        """The platform's own certificates."""
        return self.path / "tls"

    @property
    def tls_authority(self) -> Path:
        """The certificate that clients trust; public."""
        return self.tls / "ca.pem"

    @property
    def tls_authority_key(self) -> Path:
        """The key that signs the server's certificate."""
        return self.tls / "ca.key"

    @property
    def tls_certificate(self) -> Path:
        """The server's certificate, signed by the platform's own CA."""
        return self.tls / "server.pem"

    @property
    def tls_key(self) -> Path:
        """The server's private key."""
        return self.tls / "server.key"

    @property
    def tls_bundle(self) -> Path:
        """What jobs trust: the machine's CAs and the platform's."""
        return self.tls / "bundle.pem"

    @property
    def client(self) -> Path:
        """URL and token for the command line of the user who started the platform."""
        return self.path / "client.json"

    @property
    def doorbell(self) -> Path:
        """A FIFO: a byte written into it wakes the control loop."""
        return self.run / "control.bell"

    def run_folder(self, job_id: str, attempt: int, node_index: int) -> RunFolder:
        """The run folder of one node of one attempt."""
        return RunFolder(self.jobs / job_id / f"attempt-{attempt}" / f"node-{node_index}")
