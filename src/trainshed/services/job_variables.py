"""The variables that tell a job where the platform is and who it is there."""

from __future__ import annotations

from trainshed.services.platform import Platform

__all__ = ["CREDENTIAL_NAMES", "platform_variables"]

# The variables that carry a job's temporary credentials.
CREDENTIAL_NAMES = ("TRAINSHED_TOKEN", "TRAINSHED_ACCESS_KEY", "TRAINSHED_SECRET_KEY")


def platform_variables(platform: Platform) -> dict[str, str]:
    """Where a job finds the platform: with network `platform` under the same ports on its own loopback."""
    settings = platform.settings
    return {
        "TRAINSHED_URL": f"http://127.0.0.1:{settings.port}",
        "TRAINSHED_OBS_URL": f"http://127.0.0.1:{settings.obs_port}",
    }
