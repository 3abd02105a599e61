"""Who you are, credentials, tokens; users and workspaces for administrators."""

from __future__ import annotations

import os

import click

from trainshed.cli.connection import (
    Connection,
    connection_options,
    load_connection,
    open_client,
    save_connection,
)
from trainshed.cli.presentation import (
    format_age,
    format_time,
    json_option,
    print_fields,
    print_json,
    print_table,
)

__all__ = ["credentials", "key", "login", "login_link", "token", "user", "whoami", "workspace"]


@click.command()
@click.argument("url")
@click.option("--token", "text", help="A token; else it is asked for.")
@click.option("--user", help="Sign in with this user's password in place of a token.")
@click.option("--ca", metavar="FILE", help="The CA of the platform's certificate; a copy is kept.")
def login(url: str, text: str | None, user: str | None, ca: str | None) -> None:
    """Connect this command line to the platform at URL."""
    from trainshed.client import Client
    from trainshed.client.directory import sign_in

    if text and user:
        raise click.UsageError("Give --token or --user, not both.")
    ca = ca or connection_options().ca or os.environ.get("TRAINSHED_CA") or ""
    if user:
        text = sign_in(url, user, click.prompt("Password", hide_input=True), ca=ca)
    text = text or click.prompt("Token (the console shows how to make one)", hide_input=True)
    with Client(url, text.strip(), ca=ca) as client:
        # Asking proves that the URL and the token are right before anything is saved.
        me = client.whoami()
        obs_url = client.endpoints().obs_url
    path = save_connection(Connection(client.url, obs_url, text.strip(), ca), connection_options().home)
    click.echo(f"Signed in to {client.url} as {me.user_name}. The connection is saved in {path}.")


@click.command()
@json_option
def whoami(as_json: bool) -> None:
    """Show who you are and where."""
    with open_client() as client:
        me = client.whoami()
    if as_json:
        print_json(me)
        return
    print_fields(
        [
            ("User", me.user_name + (" (administrator)" if me.is_admin else "")),
            ("Workspace", me.workspace or me.workspace_id),
            ("Role", me.role),
            ("Scopes", ", ".join(me.scopes)),
            ("Job", me.job_id),
            ("Platform", client.url),
        ]
    )


@click.command()
@click.option(
    "--format", "form", type=click.Choice(["text", "env", "json"]), default="text", help="How to print them."
)
def credentials(form: str) -> None:
    """Print endpoints, project_id, token and access keys for other tools.

    \b
    eval "$(trainshed credentials --format env)"
    """
    with open_client() as client:
        found = client.credentials()
    if form == "json":
        print_json(found)
        return
    if form == "env":
        import shlex

        for name, value in (
            ("TRAINSHED_URL", found.url),
            ("TRAINSHED_OBS_URL", found.obs_url),
            ("TRAINSHED_TOKEN", found.token),
            ("PROJECT_ID", found.project_id),
            ("AWS_ENDPOINT_URL", found.obs_url),
            ("AWS_ACCESS_KEY_ID", found.access_key),
            ("AWS_SECRET_ACCESS_KEY", found.secret_key),
        ):
            click.echo(f"export {name}={shlex.quote(value)}")
        if authority := load_connection().ca:
            for name in ("TRAINSHED_CA", "AWS_CA_BUNDLE"):
                click.echo(f"export {name}={shlex.quote(authority)}")
        return
    print_fields(
        [
            ("url", found.url),
            ("obs_url", found.obs_url),
            ("project_id", found.project_id),
            ("token", found.token),
            ("access_key", found.access_key),
            ("secret_key", found.secret_key),
        ]
    )


@click.group()
def token() -> None:
    """Create, list and revoke tokens."""


@token.command("create")
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, help="What it may be used for; all that you may, if left out."
)
@click.option("--days", type=click.IntRange(1), help="Valid for so many days.")
@json_option
def create_token(name: str, scopes: tuple[str, ...], days: int | None, as_json: bool) -> None:
    """Create a token called NAME. Its text is shown only now."""
    with open_client() as client:
        made = client.create_token(name, scopes=list(scopes) or None, days=days)
    if as_json:
        print_json(made)
        return
    click.echo(made.token)
    click.echo(
        f"Keep it safe: it is not shown again. Valid until {format_time(made.expires_at) or 'revoked'}.",
        err=True,
    )


@token.command("list")
@json_option
def list_tokens(as_json: bool) -> None:
    """List your tokens."""
    with open_client() as client:
        found = client.tokens()
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "NAME", "SCOPES", "AGE", "EXPIRES"),
        [
            (
                item.id[:8],
                item.name,
                ",".join(item.scopes),
                format_age(item.created_at),
                format_time(item.expires_at)[:10],
            )
            for item in found
        ],
        elastic="NAME",
        empty="There are no tokens.",
    )


@token.command("revoke")
@click.argument("token_id")
def revoke_token(token_id: str) -> None:
    """Make a token useless from now on. TOKEN_ID is its id, the beginning of it, or its name."""
    from trainshed.model.errors import NotFound

    with open_client() as client:
        found = [item for item in client.tokens() if item.id.startswith(token_id) or item.name == token_id]
        if len(found) != 1:
            what = "There is no token" if not found else "Several tokens match"
            raise NotFound(f"{what} '{token_id}'.", hint="`trainshed token list` shows their ids.")
        client.revoke_token(found[0].id)
    click.echo(f"Token {found[0].name} was revoked.")


@click.command("login-link")
@click.argument("user_name", metavar="[USER]", default="")
def login_link(user_name: str) -> None:
    """Print a link that signs in to the console once: for you, or for USER (administrators)."""
    with open_client() as client:
        click.echo(client.create_login_link(user_name))


@click.group()
def key() -> None:
    """Create, list and delete access keys."""


@key.command("create")
@click.argument("name")
@json_option
def create_key(name: str, as_json: bool) -> None:
    """Create an access key called NAME for tools that speak S3 or OBS. Its secret half is shown only now."""
    with open_client() as client:
        made = client.create_access_key(name)
    if as_json:
        print_json(made)
    else:
        print_fields([("access_key", made.access_key), ("secret_key", made.secret_key)])


@key.command("list")
@json_option
def list_keys(as_json: bool) -> None:
    """List your access keys."""
    with open_client() as client:
        found = client.access_keys()
    if as_json:
        print_json(found)
        return
    print_table(
        ("ACCESS KEY", "NAME", "AGE"),
        [(item.access_key, item.name, format_age(item.created_at)) for item in found],
        elastic="NAME",
        empty="There are no access keys. `trainshed credentials` makes the first one.",
    )


@key.command("delete")
@click.argument("access_key")
def delete_key(access_key: str) -> None:
    """Make an access key useless from now on."""
    with open_client() as client:
        client.delete_access_key(access_key)
    click.echo(f"Access key {access_key} was deleted.")


@click.group()
def user() -> None:
    """Add and list users (administrators)."""


@user.command("add")
@click.argument("name")
@click.option("--admin", is_flag=True, help="An administrator of the platform.")
@click.option("--password", help="A password; without one the user signs in by a login link.")
@json_option
def add_user(name: str, admin: bool, password: str | None, as_json: bool) -> None:
    """Add the user NAME."""
    with open_client() as client:
        made = client.add_user(name, password or "", is_admin=admin)
    if as_json:
        print_json(made)
        return
    click.echo(f"User {made.name} was added.")
    if not password:
        click.echo(f"Next:  trainshed login-link {made.name}", err=True)
    click.echo(f"Next:  trainshed workspace member WORKSPACE {made.name} --role developer", err=True)


@user.command("list")
@json_option
def list_users(as_json: bool) -> None:
    """List all users."""
    with open_client() as client:
        found = client.users()
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "NAME", "ADMIN", "AGE", "STATE"),
        [
            (
                item.id[:8],
                item.name,
                "yes" if item.is_admin else "",
                format_age(item.created_at),
                "disabled" if item.disabled else "active",
            )
            for item in found
        ],
        elastic="NAME",
        empty="There are no users.",
    )


@click.group()
def workspace() -> None:
    """Add and list workspaces and members."""


@workspace.command("add")
@click.argument("name")
@json_option
def add_workspace(name: str, as_json: bool) -> None:
    """Add the workspace NAME (administrators)."""
    with open_client() as client:
        made = client.add_workspace(name)
    if as_json:
        print_json(made)
    else:
        click.echo(f"Workspace {made.name} ({made.id}) was added.")


@workspace.command("list")
@json_option
def list_workspaces(as_json: bool) -> None:
    """List the workspaces that you can see."""
    with open_client() as client:
        found = client.workspaces()
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "NAME", "ROLE", "AGE"),
        [(item.id, item.name, item.role, format_age(item.created_at)) for item in found],
        elastic="NAME",
        empty="There are no workspaces.",
    )


@workspace.command("member")
@click.argument("workspace_name", metavar="WORKSPACE")
@click.argument("user_name", metavar="USER")
@click.option("--role", type=click.Choice(["viewer", "developer", "manager"]), help="The member's role.")
@click.option("--remove", is_flag=True, help="Take the user out of the workspace.")
def set_member(workspace_name: str, user_name: str, role: str | None, remove: bool) -> None:
    """Make USER a member of WORKSPACE, change the role, or remove the member."""
    if remove == bool(role):
        raise click.UsageError("Give --role or --remove.")
    with open_client() as client:
        if remove:
            client.remove_member(workspace_name, user_name)
            click.echo(f"{user_name} is no longer a member of {workspace_name}.")
        else:
            made = client.set_member(workspace_name, user_name, role or "developer")
            click.echo(f"{made.user_name} is {made.role} in {workspace_name}.")


@workspace.command("members")
@click.argument("workspace_name", metavar="WORKSPACE")
@json_option
def list_members(workspace_name: str, as_json: bool) -> None:
    """List the members of WORKSPACE."""
    with open_client() as client:
        found = client.members(workspace_name)
    if as_json:
        print_json(found)
        return
    print_table(
        ("USER", "ROLE"),
        [(item.user_name, item.role) for item in found],
        elastic="USER",
        empty="The workspace has no members.",
    )
