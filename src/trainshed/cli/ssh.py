"""`trainshed ssh`: enter a running job; and the keys that open your jobs to other ssh clients."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainshed.cli.connection import connection_options, load_connection, open_client
from trainshed.cli.presentation import format_age, json_option, print_json, print_table
from trainshed.model.errors import HostUnfit, InvalidInput, Unavailable

if TYPE_CHECKING:
    from trainshed.client.results import SshAccess

__all__ = ["ssh", "ssh_keys", "ssh_proxy"]

_PIECE = 64 * 1024


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("job")
@click.option("--node", default=0, show_default=True, metavar="N", help="Which node of the job.")
@click.option(
    "-L", "forwards", multiple=True, metavar="PORT:HOST:PORT", help="Forward a port of yours into the job."
)
@click.option("--config", "as_config", is_flag=True, help="Print lines for ~/.ssh/config instead.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(job: str, node: int, forwards: tuple[str, ...], as_config: bool, command: tuple[str, ...]) -> None:
    """Open a shell in a running JOB, or run a COMMAND there (write `--` before one that has options).

    It runs inside the job's sandbox, with its files, variables and devices. No key is needed: you get a
    certificate for a few minutes. The exit code is the command's.
    """
    with open_client() as client:
        if as_config:
            click.echo(render_config(client.ssh_access(job, node)), nl=False)
            return
        program, key_maker = _find_program("ssh"), _find_program("ssh-keygen")
        folder = Path(tempfile.mkdtemp(prefix="trainshed-ssh-"))
        try:
            key = folder / "id"
            subprocess.run(
                [key_maker, "-q", "-t", "ed25519", "-N", "", "-C", "trainshed ssh", "-f", str(key)],
                check=True,
                stdin=subprocess.DEVNULL,
            )
            access = client.ssh_access(job, node, (folder / "id.pub").read_text())
            (folder / "id-cert.pub").write_text(f"{access.certificate}\n")
            (folder / "known_hosts").write_text(f"{_alias(access)} {access.host_key}\n")
            options = {
                "ProxyCommand": proxy_command(access),
                "HostKeyAlias": _alias(access),
                "UserKnownHostsFile": str(folder / "known_hosts"),
                "StrictHostKeyChecking": "yes",
                "IdentitiesOnly": "yes",
                "LogLevel": "ERROR",
                # A node that is gone without a word is noticed, and not waited for for ever.
                "ConnectTimeout": "60",
                "ServerAliveInterval": "10",
                "ServerAliveCountMax": "3",
            }
            arguments = [program, "-F", "/dev/null", "-i", str(key)]
            for name, value in options.items():
                arguments += ["-o", f"{name}={value}"]
            for forward in forwards:
                arguments += ["-L", forward]
            code = subprocess.call([*arguments, f"{access.user}@{_alias(access)}", *command])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(code)


@click.command("ssh-proxy")
@click.argument("job")
@click.option("--node", default=0, metavar="N", help="Which node of the job.")
def ssh_proxy(job: str, node: int) -> None:
    """Carry an ssh client's bytes to a JOB: for ProxyCommand in ~/.ssh/config."""
    from trainshed.client.tunnel import open_tunnel

    with open_client() as client:
        # Asked first, for an answer in words; the tunnel itself can only be refused.
        access = client.ssh_access(job, node)
    connection = load_connection()
    path = f"/api/v1/jobs/{access.job_id}/ssh/{node}"
    tunnel = open_tunnel(connection.url, connection.token, path, connection.ca)

    def send() -> None:
        try:
            while data := os.read(0, _PIECE):
                tunnel.send(data)
        except OSError:
            pass
        tunnel.finish()

    threading.Thread(target=send, daemon=True).start()
    try:
        while data := tunnel.receive():
            while data:
                data = data[os.write(1, data) :]
    except BrokenPipeError:
        pass
    finally:
        tunnel.close()
    if tunnel.reason:
        raise Unavailable(tunnel.reason, hint="`trainshed show` says how the job is.")


@click.group("ssh-keys")
def ssh_keys() -> None:
    """Register, list and remove public keys that open your jobs."""


@ssh_keys.command("add")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--name", default="", help="What it is called; by default the key's comment.")
@json_option
def add_key(file: str | None, name: str, as_json: bool) -> None:
    """Register the public key in FILE (by default the first of ~/.ssh/id_*.pub; `-` reads it from the input)."""
    text = _read_key(file)
    with open_client() as client:
        made = client.add_ssh_key(text, name)
    if as_json:
        print_json(made)
    else:
        click.echo(f"The key {made.name} ({made.fingerprint}) opens the jobs that you start from now on.")


@ssh_keys.command("list")
@json_option
def list_keys(as_json: bool) -> None:
    """List your keys."""
    with open_client() as client:
        found = client.ssh_keys()
    if as_json:
        print_json(found)
        return
    print_table(
        ("FINGERPRINT", "NAME", "AGE"),
        [(item.fingerprint, item.name, format_age(item.created_at)) for item in found],
        elastic="NAME",
        empty="There are no keys. `trainshed ssh-keys add` registers one.",
    )


@ssh_keys.command("remove")
@click.argument("key")
def remove_key(key: str) -> None:
    """Remove a KEY, by its fingerprint or name; jobs that run already keep knowing it."""
    with open_client() as client:
        client.remove_ssh_key(key)
    click.echo(f"The key {key} was removed.")


def proxy_command(access: SshAccess) -> str:
    """The command by which an ssh client reaches a node through this command line's platform."""
    given = connection_options()
    words = [sys.executable, "-m", "trainshed.cli.main"]
    # An editor that is started elsewhere does not have this shell's variables.
    home = given.home or os.environ.get("TRAINSHED_HOME")
    pairs: list[tuple[str, Any]] = [("--url", given.url), ("--home", home), ("--ca", given.ca)]
    for name, value in pairs:
        if value:
            words += [name, str(value)]
    words += ["ssh-proxy", access.job_id, "--node", str(access.node)]
    # For ssh a percent sign begins a placeholder.
    return shlex.join(words).replace("%", "%%")


def render_config(access: SshAccess) -> str:
    """Lines for ~/.ssh/config by which any ssh client, also an editor's, reaches a node; with a registered key."""
    names = [access.job_name] if access.node == 0 else []
    names += [f"{access.job_name}-{access.node}"] if access.nodes > 1 else []
    return (
        f"Host {' '.join(names)}\n"
        f"  User {access.user}\n"
        f"  ProxyCommand {proxy_command(access)}\n"
        f"  HostKeyAlias {_alias(access)}\n"
        "  StrictHostKeyChecking accept-new\n"
        "  ServerAliveInterval 10\n"
    )


def _alias(access: SshAccess) -> str:
    return f"trainshed-{access.job_id}"


def _find_program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise HostUnfit(
            f"The program {name} is not installed here.",
            hint="Install OpenSSH's client (Debian, Ubuntu: apt install openssh-client).",
            code="no_ssh_client",
        )
    return found


def _read_key(file: str | None) -> str:
    if file == "-":
        return sys.stdin.read()
    if file is not None:
        return Path(file).expanduser().read_text("utf-8")
    for name in ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"):
        path = Path.home() / ".ssh" / name
        if path.is_file():
            return path.read_text("utf-8")
    raise InvalidInput(
        "There is no public key in ~/.ssh.",
        hint="Make one with `ssh-keygen -t ed25519`, or name a file.",
        code="ssh_key",
    )
