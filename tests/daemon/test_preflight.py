"""Checks before the start."""

from __future__ import annotations

import importlib.util
import socket

import pytest

from trainshed.daemon.preflight import check_host, check_settings, choose_ports, is_port_free
from trainshed.model.errors import Conflict, HostUnfit, InvalidInput
from trainshed.model.settings import Settings


def test_this_host_can_run_the_server() -> None:
    check_host()


def test_missing_packages_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "granian" else real(name))
    with pytest.raises(HostUnfit, match=r"granian\. In a checkout of Trainshed: pip install '\.\[server\]'"):
        check_host()


def test_a_port_in_use_is_refused_by_name() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not is_port_free("127.0.0.1", port)
        with pytest.raises(Conflict, match=f"Port {port} of 127.0.0.1 is in use") as caught:
            choose_ports(Settings(port=0, obs_port=port))
        assert caught.value.where == "--obs-port"


def test_port_zero_becomes_two_different_free_ports() -> None:
    settings = choose_ports(Settings(port=0, obs_port=0))
    assert settings.port and settings.obs_port and settings.port != settings.obs_port


@pytest.mark.parametrize(
    "settings",
    [Settings(port=7, obs_port=7), Settings(rehearse="abacus:8"), Settings(host="no.such.host.invalid")],
)
def test_settings_that_can_only_fail_later_are_refused(settings: Settings) -> None:
    with pytest.raises(InvalidInput):
        check_settings(settings)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises((Conflict, HostUnfit)):
        choose_ports(Settings(host="203.0.113.7", port=21599, obs_port=21598))
