"""The doctor on this very host."""

from __future__ import annotations

import socket
from pathlib import Path

from trainshed.daemon.doctor import examine_host
from trainshed.daemon.home_folder import make_home
from trainshed.model.home import Home


def test_a_new_home_needs_nothing_made_before(tmp_path: Path) -> None:
    findings = {finding.subject: finding for finding in examine_host(Home(tmp_path / "new"), {})}
    assert findings["home"].level == "ok"
    assert "first start" in findings["home"].message
    assert not (tmp_path / "new").exists()
    for subject in ("system", "python", "packages", "git", "uv", "bubblewrap", "user namespaces", "disk"):
        assert findings[subject].level == "ok", findings[subject]
    assert {"overlay", "control groups", "processors", "devices", "port", "obs port"} <= set(findings)


def test_every_fault_comes_with_its_fix(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        home.settings.write_text(f"port = {port}\n")
        findings = {finding.subject: finding for finding in examine_host(home, {})}
    assert findings["port"].level == "bad" and str(port) in findings["port"].message
    for finding in findings.values():
        assert finding.level == "ok" or finding.fix, finding


def test_settings_that_cannot_be_read_are_a_finding_not_a_crash(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    home.settings.write_text("prot = 1\n")
    findings = {finding.subject: finding for finding in examine_host(home, {})}
    assert findings["home"].level == "bad" and "Did you mean 'port'" in findings["home"].fix


def test_a_rehearsal_is_shown_as_such(tmp_path: Path) -> None:
    findings = examine_host(Home(tmp_path), {"TRAINSHED_REHEARSE": "ascend:8"})
    assert any("8 x ascend" in finding.message and "pretend" in finding.message for finding in findings)


def test_an_external_store_that_is_away_is_a_finding(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{probe.getsockname()[1]}"
    home.settings.write_text(
        f'store_url = "s3://lab"\nstore_endpoint = "{endpoint}"\nstore_access_key = "a"\nstore_secret_key = "hidden"\n'
    )
    (finding,) = [finding for finding in examine_host(home, {}) if finding.subject == "store"]
    assert finding.level == "bad" and "cannot be reached" in finding.message and "hidden" not in str(finding)
    assert not home.external_store.exists()
