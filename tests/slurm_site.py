"""A whole site for tests: Unix accounts, a cluster with accounting, sudo, and a platform that is an ordinary account's.

Needs root: it makes accounts and a sudo rule, and removes them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import slurm_yard

__all__ = ["Site", "accounted_cluster", "open_site"]

REPOSITORY = Path(__file__).resolve().parents[1]
_SLURMDBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=local
StorageLoc=slurm_acct_db
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""
_PASSWORD = "correct-horse-battery"


def accounted_cluster(folder: Path) -> Any:
    """A cluster of three nodes with slurmdbd and a MariaDB of its own; a context manager."""
    module = slurm_yard.load_cluster_module()
    port = slurm_yard.free_ports(6)

    class Accounted(module.SlurmCluster):  # type: ignore[misc,name-defined]
        """The starter of clusters, with accounting before the controller."""

        def _start(self, name: str, *arguments: str, **options: Any) -> None:
            if name == "munged":
                conf = self.folder / "slurm.conf"
                more = f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={port + 4}"
                more += f"\nAccountingStoragePass={self.folder}/munge.sock"
                text = conf.read_text().replace(
                    "accounting_storage/none", f"accounting_storage/slurmdbd\n{more}"
                )
                conf.write_text(text)
            elif name == "slurmctld" and "-i" in arguments:
                self._start_accounting()
            super()._start(name, *arguments, **options)

        def _start_accounting(self) -> None:
            data, door = self.folder / "database", self.folder / "database.sock"
            subprocess.run(
                [
                    *("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}"),
                    *("--auth-root-authentication-method=normal", "--skip-test-db"),
                ],
                check=True,
                capture_output=True,
                timeout=120,
            )
            super()._start(
                *("mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={door}"),
                *(f"--port={port + 5}", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M"),
                *("--innodb-log-file-size=8M", "--innodb-lock-wait-timeout=900"),
            )
            self._wait("the database", door.exists)
            words = (
                "create database slurm_acct_db; create user slurm@'127.0.0.1' identified by 'local'; "
                "grant all on slurm_acct_db.* to slurm@'127.0.0.1';"
            )
            subprocess.run(
                ["mariadb", "--no-defaults", "-uroot", f"--socket={door}", "-e", words],
                check=True,
                timeout=120,
            )
            conf = self.folder / "slurmdbd.conf"
            conf.touch(mode=0o600)
            conf.write_text(_SLURMDBD.format(folder=self.folder, port=port + 4, database=port + 5))
            self.start_accounting()
            # A controller may only speak for a cluster that accounting knows.
            cluster = "bench"
            self._wait(
                "slurmdbd",
                lambda: self.call("sacctmgr", "-i", "add", "cluster", cluster, check=False).returncode == 0,
            )

        def start_accounting(self) -> None:
            """Start slurmdbd (again)."""
            super()._start("slurmdbd", "-D")

        def forget_all(self) -> None:
            """Restart the controller without its memory, as if every job had been forgotten."""
            self.kill("slurmctld")
            super()._start("slurmctld", "-D", "-c")
            self._wait("the nodes", self._is_idle)

    return Accounted(nodes=3, cpus=8, port=port, lab=True, folder=folder)


class Site:
    """A cluster, three accounts, and a platform that runs as the first of them."""

    def __init__(self, folder: Path, cluster: Any, names: dict[str, str], rule: Path) -> None:
        self.folder, self.cluster, self.rule = folder, cluster, rule
        # service, ann, bob -> the names of their accounts.
        self.names = names
        self.home = folder / "home"
        self.python, self.interpreter = _make_interpreter(folder, names["service"])
        self._tokens: dict[str, str] = {}

    def uid(self, who: str) -> int:
        """The number of an account."""
        return pwd.getpwnam(self.names[who]).pw_uid

    def run_as(self, who: str, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command as one of the accounts, with nothing of this process's environment."""
        account = pwd.getpwnam(self.names[who])
        environment = {
            **{
                "HOME": account.pw_dir,
                "USER": account.pw_name,
                "LOGNAME": account.pw_name,
                "LANG": "C.UTF-8",
            },
            **{"PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"},
            **{"SLURM_CONF": self.cluster.environment["SLURM_CONF"]},
            **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))},
            **options.pop("environment", {}),
        }
        return subprocess.run(
            command,
            **{"text": True, "capture_output": True, "timeout": 180, "cwd": "/", "check": False, **options},
            env=environment,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=os.getgrouplist(account.pw_name, account.pw_gid),
        )

    def host(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `trainshed` as the platform's account, which is its administrator as well."""
        more = {"TRAINSHED_HOME": str(self.home), **options.pop("environment", {})}
        return self.run_as(
            "service", str(self.python), "-m", "trainshed.cli.main", *arguments, environment=more, **options
        )

    def write_settings(self, text: str) -> None:
        """Replace the platform's settings."""
        file = self.home / "settings.toml"
        file.write_text(text)
        os.chown(file, self.uid("service"), -1)

    def install_rule(self) -> str:
        """Do what the guide says with the sudo rule."""
        printed = self.host("engine", "sudoers")
        assert printed.returncode == 0, printed.stderr
        self.rule.write_text(printed.stdout)
        self.rule.chmod(0o440)
        subprocess.run(["visudo", "-c", "-f", str(self.rule)], check=True, capture_output=True, timeout=120)
        return printed.stdout

    def add_user(self, name: str) -> None:
        """A user of the platform, who may work in the first workspace."""
        made = self.host("user", "add", name, "--password", _PASSWORD)
        assert made.returncode == 0, made.stderr
        joined = self.host("workspace", "member", "default", name, "--role", "developer")
        assert joined.returncode == 0, joined.stderr

    def cli(self, support: Any, user: str, *arguments: str | Path, **options: Any) -> Any:
        """Run `trainshed` as a user of the platform, from anywhere."""
        from trainshed.client.directory import sign_in

        if user not in self._tokens:
            self._tokens[user] = sign_in(self.url, user, _PASSWORD)
        connection = {"TRAINSHED_URL": self.url, "TRAINSHED_TOKEN": self._tokens[user]}
        return support.run_cli(*arguments, environment=connection, home=self.folder / "client", **options)

    @property
    def url(self) -> str:
        """Where the platform answers."""
        import json

        return str(json.loads((self.home / "client.json").read_bytes())["url"])


@contextmanager
def open_site(folder: Path) -> Iterator[Site]:
    """The site, and nothing of it afterwards."""
    assert os.geteuid() == 0, "accounts and sudo rules are made by root"
    mark = f"{os.getpid() % 100000:05d}"
    names = {"service": f"ts{mark}s", "ann": f"ts{mark}a", "bob": f"ts{mark}b"}
    rule = Path("/etc/sudoers.d") / f"trainshed-test-{mark}"
    folder.chmod(0o755)
    made: list[str] = []
    try:
        for name in names.values():
            subprocess.run(
                ["useradd", "-m", "-s", "/bin/sh", name], check=True, capture_output=True, timeout=120
            )
            made.append(name)
        with accounted_cluster(folder / "cluster") as cluster:
            site = Site(folder, cluster, names, rule)
            site.home.mkdir(mode=0o700)
            os.chown(site.home, site.uid("service"), -1)
            try:
                yield site
            finally:
                site.host("down")
                _cancel_all(cluster, names)
    finally:
        rule.unlink(missing_ok=True)
        for name in made:
            shutil.rmtree(f"/tmp/trainshed-{pwd.getpwnam(name).pw_uid}", ignore_errors=True)
            subprocess.run(["userdel", "-rf", name], check=False, capture_output=True, timeout=120)


def _cancel_all(cluster: Any, names: dict[str, str]) -> None:
    for name in names.values():
        cluster.call("scancel", "-u", name, check=False)
    deadline = time.monotonic() + 90
    while cluster.call("squeue", "-h", check=False).stdout and time.monotonic() < deadline:
        time.sleep(0.1)


def _make_interpreter(folder: Path, account: str) -> tuple[Path, str]:
    """A Python with the platform's packages that an ordinary account can run, and the plain one below it."""
    entry = pwd.getpwnam(account)
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    own = os.path.realpath(sys.executable)
    for program in (own, f"/usr/bin/python{wanted}", "/usr/bin/python3", f"/usr/local/bin/python{wanted}"):
        if os.path.exists(program) and _says(program, entry) == wanted:
            break
    else:
        # Ours lies where nobody else may look, such as root's home: a copy of it without its packages and tests.
        copy = folder / "python"
        left_out = shutil.ignore_patterns("test", "tests", "site-packages", "__pycache__", "share", "*.a")
        shutil.copytree(sys.base_prefix, copy, ignore=left_out, symlinks=True)
        program = str(copy / "bin" / f"python{wanted}")
        assert _says(program, entry) == wanted, f"{program} does not work for {account}"
    place = folder / "environment"
    subprocess.run([program, "-m", "venv", "--without-pip", str(place)], check=True, timeout=120)
    packages = _open_to(
        entry, Path(sys.prefix) / "lib" / f"python{wanted}" / "site-packages", folder / "packages"
    )
    # The platform looks for its shims beside its sources.
    source = _open_to(entry, REPOSITORY / "src", folder / "checkout" / "src")
    if source.parent != REPOSITORY:
        _open_to(entry, REPOSITORY / "shims", folder / "checkout" / "shims")
    (place / "lib" / f"python{wanted}" / "site-packages" / "platform.pth").write_text(
        f"{source}\n{packages}\n"
    )
    uv = Path(sys.executable).parent / "uv"
    if uv.exists():
        (place / "bin" / "uv").symlink_to(_open_to(entry, uv, folder / "uv"))
    python = place / "bin" / "python"
    done = subprocess.run(
        [str(python), "-c", "import trainshed, granian"],
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"HOME": entry.pw_dir},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return python, program


def _open_to(entry: pwd.struct_passwd, path: Path, copy: Path) -> Path:
    """A file or folder that an account can read: itself, or a copy where a folder above it is closed."""
    done = subprocess.run(
        ["test", "-r", str(path)],
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        timeout=120,
        check=False,
    )
    if done.returncode == 0:
        return path
    copy.parent.mkdir(parents=True, exist_ok=True)
    # By hard links, which cost nothing, where that is possible.
    for option in ("-al", "-aL"):
        if (
            subprocess.run(
                ["cp", option, str(path), str(copy)], stderr=subprocess.DEVNULL, timeout=300
            ).returncode
            == 0
        ):
            break
        shutil.rmtree(copy, ignore_errors=True)
    return copy


def _says(program: str, entry: pwd.struct_passwd) -> str:
    try:
        done = subprocess.run(
            [program, "-c", "import ssl, sqlite3, sys; print('%d.%d' % sys.version_info[:2])"],
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            cwd="/",
            env={},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip()
