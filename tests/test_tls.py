"""A platform that speaks TLS, with its own CA: every client verifies, and a stranger's certificate is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from trainshed.client.objects import ObjectClient
from trainshed.model.errors import Unavailable
from trainshed.services.certificates import issue_certificate, make_authority, make_key, now_utc

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def platform(support: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A platform with TLS and a bucket `data`."""
    path = tmp_path_factory.mktemp("tls") / "home"
    try:
        started = support.start_platform(path, "--tls", environment={"TRAINSHED_HOST_NAMES": "shed.test"})
        assert started.cli("obs", "mb", "data").exit_code == 0
        yield started
    finally:
        support.stop_platform(path)


@pytest.fixture(scope="module")
def environment(platform: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What leads clients to the store, and lets them trust it."""
    found = platform.cli("credentials", "--format", "json").json()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SSL_"))},
        "AWS_ACCESS_KEY_ID": found["access_key"],
        "AWS_SECRET_ACCESS_KEY": found["secret_key"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": platform.obs_url,
        "S3_ENDPOINT_URL": platform.obs_url,
        "AWS_CONFIG_FILE": str(tmp_path_factory.mktemp("aws") / "config"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONWARNINGS": "ignore",
        "AWS_CA_BUNDLE": str(platform.home.tls_authority),
        "SSL_CERT_FILE": str(platform.home.tls_authority),
    }


def run(environment: dict[str, str], *command: str | Path, fails: bool = False) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def strangers(environment: dict[str, str]) -> dict[str, str]:
    """The same client without the CA."""
    return {
        name: value for name, value in environment.items() if name not in ("AWS_CA_BUNDLE", "SSL_CERT_FILE")
    }


def test_the_keys_are_private_and_addresses_say_https(platform: Any) -> None:
    for key in (platform.home.tls_authority_key, platform.home.tls_key):
        assert key.stat().st_mode & 0o777 == 0o600
    assert platform.url.startswith("https://") and platform.obs_url.startswith("https://")
    shown = platform.cli("tls", "show", "--json").json()
    assert {"localhost", "127.0.0.1", "::1", "shed.test", "*.shed.test", "*.obs.localhost"} <= set(
        shown["names"]
    )
    assert socket.gethostname().lower() in shown["names"]
    assert platform.cli("status", "--json").json()["url"] == platform.url
    assert platform.cli("tls", "ca").stdout == platform.home.tls_authority.read_text()


def test_our_own_client_verifies(platform: Any, support: Any, tmp_path: Path) -> None:
    assert "admin" in platform.cli("whoami").stdout
    variables = {"TRAINSHED_URL": platform.url, "TRAINSHED_TOKEN": platform.token}
    refused = support.run_cli("whoami", home=tmp_path, environment=variables)
    assert refused.exit_code == 1 and "CA that this machine does not know" in refused.stderr
    assert "trainshed tls ca" in refused.stderr
    with ObjectClient(platform.obs_url, platform.token) as client, pytest.raises(Unavailable) as caught:
        client.buckets()
    assert caught.value.code == "unknown_ca"
    authority = tmp_path / "downloaded.pem"
    assert platform.cli("tls", "ca", "--out", authority).exit_code == 0
    found = support.run_cli("--ca", authority, "whoami", home=tmp_path, environment=variables)
    assert found.exit_code == 0, found.output
    # After a login the platform is known, wherever the file has gone.
    done = support.run_cli(
        "login", platform.url, "--token", platform.token, "--ca", authority, home=tmp_path / "user"
    )
    assert done.exit_code == 0, done.output
    authority.unlink()
    assert "data" in support.run_cli("obs", "ls", home=tmp_path / "user").stdout
    exported = support.run_cli("credentials", "--format", "env", home=tmp_path / "user").stdout
    assert f"AWS_CA_BUNDLE={tmp_path / 'user' / 'ca.pem'}" in exported
    plain = support.run_cli(
        "whoami",
        home=tmp_path,
        environment={**variables, "TRAINSHED_URL": platform.url.replace("https", "http")},
    )
    assert "Write https://" in plain.stderr


def test_a_name_that_the_certificate_lacks_is_refused(platform: Any) -> None:
    context = ssl.create_default_context(cafile=str(platform.home.tls_authority))
    port = int(platform.obs_url.rpartition(":")[2])
    for name, accepted in (("shed.test", True), ("data.obs.localhost", True), ("elsewhere.test", False)):
        with socket.create_connection(("127.0.0.1", port), 10) as raw:
            if accepted:
                with context.wrap_socket(raw, server_hostname=name) as wrapped:
                    assert wrapped.version() in ("TLSv1.2", "TLSv1.3")
            else:
                with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
                    context.wrap_socket(raw, server_hostname=name)


@pytest.mark.slow
def test_clients_of_s3(environment: dict[str, str], platform: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(9 << 20))
    (tmp_path / "empty.conf").touch()
    rclone = {
        "RCLONE_CONFIG": str(tmp_path / "empty.conf"),
        "RCLONE_CONFIG_SHED_TYPE": "s3",
        "RCLONE_CONFIG_SHED_PROVIDER": "Other",
        "RCLONE_CONFIG_SHED_ENV_AUTH": "true",
        "RCLONE_CONFIG_SHED_ENDPOINT": platform.obs_url,
        "RCLONE_RETRIES": "1",
        "RCLONE_LOW_LEVEL_RETRIES": "1",
    }
    commands: list[tuple[Any, ...]] = [
        ("aws", "s3", "cp", source, "s3://data/aws"),
        ("s5cmd", "--retry-count", "0", "cp", source, "s3://data/s5cmd"),
        ("rclone", "copyto", source, "shed:data/rclone"),
    ]
    for program, *arguments in commands:
        run(environment | rclone, BIN / program, *arguments)
        refused = run(strangers(environment) | rclone, BIN / program, *arguments, fails=True)
        assert "certificate" in refused.lower(), refused
    listed = run(environment, BIN / "aws", "s3", "ls", "s3://data/")
    assert listed.count(str(9 << 20)) == 3
    url = run(environment, BIN / "aws", "s3", "presign", "s3://data/aws").strip()
    assert url.startswith(platform.obs_url)
    context = ssl.create_default_context(cafile=str(platform.home.tls_authority))
    assert httpx.get(url, verify=context).content == source.read_bytes()


BOTO = """
import sys, boto3, obstore
from obstore.store import S3Store
url, access, secret, ca = sys.argv[1:]
s3 = boto3.client("s3")
s3.put_object(Bucket="data", Key="boto", Body=b"boto")
assert s3.get_object(Bucket="data", Key="boto")["Body"].read() == b"boto"
store = S3Store("data", endpoint=url, access_key_id=access, secret_access_key=secret, region="us-east-1")
obstore.put(store, "obstore", b"obstore")
assert bytes(obstore.get(store, "boto").bytes()) == b"boto"
from obs import ObsClient
client = ObsClient(access, secret, server=url, ssl_verify=ca, max_retry_count=0)
assert client.putContent("data", "sdk", "sdk").status == 200
assert client.getObject("data", "obstore", loadStreamInMemory=True).body.buffer == b"obstore"
"""
REFUSED = """
import sys, boto3, obstore
from obstore.store import S3Store
url, access, secret, ca = sys.argv[1:]
try:
    boto3.client("s3").list_buckets()
except Exception as fault:
    assert "CERTIFICATE_VERIFY_FAILED" in str(fault), fault
else:
    raise AssertionError("boto3")
store = S3Store("data", endpoint=url, access_key_id=access, secret_access_key=secret, region="us-east-1",
                retry_config={"max_retries": 0})
try:
    obstore.head(store, "boto")
except Exception as fault:
    assert "certificate" in repr(fault).lower() or "UnknownIssuer" in repr(fault), fault
else:
    raise AssertionError("obstore")
from obs import ObsClient
client = ObsClient(access, secret, server=url, ssl_verify=True, max_retry_count=0)
try:
    answer = client.putContent("data", "sdk", "sdk")
except Exception as fault:
    assert "CERTIFICATE" in str(fault).upper(), fault
else:
    raise AssertionError(vars(answer))
"""


@pytest.mark.slow
def test_libraries(environment: dict[str, str], platform: Any) -> None:
    arguments = (
        platform.obs_url,
        environment["AWS_ACCESS_KEY_ID"],
        environment["AWS_SECRET_ACCESS_KEY"],
        platform.home.tls_authority,
    )
    run(environment, sys.executable, "-c", BOTO, *arguments)
    run(strangers(environment), sys.executable, "-c", REFUSED, *arguments)


JOB = """
import json, os, subprocess, urllib.request
import moxing as mox
import boto3
from moxing.framework.file.http_store import HttpSettings, HttpStore

assert os.environ["S3_USE_HTTPS"] == "1" and os.environ["AWS_ENDPOINT_URL"].startswith("https://")
mox.file.write("obs://data/from-mox", "through the broker")
assert boto3.client("s3").get_object(Bucket="data", Key="from-mox")["Body"].read() == b"through the broker"
store = HttpStore(
    HttpSettings(os.environ["S3_ENDPOINT"], os.environ["ACCESS_KEY_ID"], os.environ["SECRET_ACCESS_KEY"])
)
store.write("data", "from-http", [b"over https"])
print(json.load(urllib.request.urlopen(os.environ["TRAINSHED_URL"] + "/healthz")))
subprocess.run(["curl", "-sSf", os.environ["TRAINSHED_OBS_URL"] + "/healthz"], check=True)
port = os.environ["TRAINSHED_OBS_URL"].rpartition(":")[2]
os.environ.pop("SSL_CERT_FILE")
try:
    urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz")
except OSError as fault:
    assert "CERTIFICATE_VERIFY_FAILED" in str(fault)
    print("refused without the CA")
"""


@pytest.mark.slow
def test_a_job_reaches_the_platform(platform: Any, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text(JOB)
    (code / "requirements.txt").write_text("boto3\n")
    done = platform.cli("run", "--code", code, "--boot", "main.py", "--follow", timeout=150)
    assert done.exit_code == 0, done.output
    assert "refused without the CA" in done.stdout
    assert platform.cli("obs", "cat", "obs://data/from-http").stdout == "over https"


@pytest.mark.slow
def test_the_console_keeps_its_cookie_to_tls(platform: Any, tmp_path: Path) -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By

    public = x509.load_pem_x509_certificate(platform.home.tls_certificate.read_bytes()).public_key()
    digest = hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    options = webdriver.ChromeOptions()
    options.binary_location = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
    )
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path / 'profile'}",
        # A key that is pinned: any other certificate is still refused.
        f"--ignore-certificate-errors-spki-list={base64.b64encode(digest).decode()}",
    ):
        options.add_argument(argument)
    link = platform.cli("login-link").stdout.split()
    address = next(word for word in link if word.startswith("https://"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chrome = webdriver.Chrome(
            options=options, service=Service(shutil.which("chromedriver") or "chromedriver")
        )
    try:
        chrome.set_page_load_timeout(60)
        chrome.get(address)
        chrome.find_element(By.ID, "sign-in").click()
        cookie = chrome.get_cookie("trainshed_session")
        assert cookie is not None and cookie["secure"] and cookie["httpOnly"]
        assert chrome.current_url.startswith("https://")
    finally:
        chrome.quit()


GIVEN_JOB = """
import json, os, urllib.request
import moxing as mox

assert os.environ["TRAINSHED_URL"].startswith("https://shed.test:"), os.environ["TRAINSHED_URL"]
for name in ("TRAINSHED_URL", "TRAINSHED_OBS_URL"):
    assert json.load(urllib.request.urlopen(os.environ[name] + "/healthz"))["status"] == "ok"
# Buckets below that name resolve; the certificate holds a star for them.
port = os.environ["TRAINSHED_OBS_URL"].rpartition(":")[2]
try:
    urllib.request.urlopen(f"https://data.shed.test:{port}/")
except urllib.error.HTTPError as fault:
    assert fault.code == 403
print("reached")
"""


@pytest.mark.slow
def test_a_given_certificate_of_a_private_ca(support: Any, tmp_path: Path) -> None:
    now, root_key, key = now_utc(), make_key(), make_key()
    root = make_authority(root_key, now)
    names = ("shed.test", "*.shed.test", "localhost")
    (tmp_path / "cert.pem").write_bytes(issue_certificate(root, root_key, key, names, now) + root)
    (tmp_path / "key.pem").write_bytes(key)
    port, obs_port = support.free_port(), support.free_port()
    variables = {
        "TRAINSHED_TLS_CERTIFICATE": str(tmp_path / "cert.pem"),
        "TRAINSHED_TLS_KEY": str(tmp_path / "key.pem"),
        # The first name of the certificate resolves inside jobs only.
        "TRAINSHED_PUBLIC_URL": f"https://localhost:{port}",
        "TRAINSHED_PUBLIC_OBS_URL": f"https://localhost:{obs_port}",
    }
    home = tmp_path / "home"
    options = ("--port", str(port), "--obs-port", str(obs_port))
    try:
        started = support.start_platform(home, *options, environment=variables)
        assert started.url == f"https://localhost:{port}"
        assert started.cli("tls", "ca").stdout == root.decode()
        code = tmp_path / "code"
        code.mkdir()
        (code / "main.py").write_text(GIVEN_JOB)
        done = started.cli("run", "--code", code, "--boot", "main.py", "--follow", timeout=150)
        assert done.exit_code == 0 and "reached" in done.stdout, done.output
    finally:
        support.stop_platform(home)


def test_a_backup_keeps_the_ca(platform: Any, support: Any, tmp_path: Path) -> None:
    done = platform.cli("backup", tmp_path / "b.tar")
    assert done.exit_code == 0, done.output
    restored = support.run_cli("restore", tmp_path / "b.tar", home=tmp_path / "again")
    assert restored.exit_code == 0, restored.output
    for name in ("ca.pem", "ca.key", "server.key"):
        path = tmp_path / "again" / "tls" / name
        assert path.read_bytes() == (platform.home.tls / name).read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    saved = json.loads(platform.home.client.read_bytes())
    assert saved["ca"] == str(platform.home.tls_authority)
