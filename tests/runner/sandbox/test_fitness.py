"""What `trainshed doctor` says about the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.runner.sandbox import fitness, namespace


def test_this_machine_is_fit(tmp_path: Path) -> None:
    findings = {finding.name: finding for finding in fitness.probe_host(tmp_path, user=65534)}
    assert set(findings) == {"bubblewrap", "user namespaces", "overlay", "control groups"}
    assert findings["bubblewrap"].is_well and findings["user namespaces"].is_well
    assert all(finding.is_well or finding.fix for finding in findings.values())
    assert list(tmp_path.iterdir()) == []


def test_a_missing_bubblewrap_is_told_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    for finding in (fitness.probe_bubblewrap(), fitness.probe_user_namespaces()):
        assert not finding.is_well and "apt install bubblewrap" in finding.fix


def test_a_folder_that_cannot_hold_an_overlay(tmp_path: Path) -> None:
    finding = fitness.probe_overlay(tmp_path / "absent")
    assert not finding.is_well and not finding.is_needed and "copied" in finding.fix


def test_the_fix_for_namespaces_names_something_to_do() -> None:
    assert any(word in namespace.describe_namespace_fix() for word in ("sysctl", "container"))


def test_versions_are_compared_as_numbers() -> None:
    assert fitness.read_version("0.11.0") > fitness.read_version("0.8.0") > fitness.read_version("0.8-rc")
