"""The variables that tell a job where the platform is and who it is there."""

from __future__ import annotations

from collections.abc import Collection

from trainshed.dialects.store_variables import keep_not_overridden
from trainshed.services.certificates import job_host
from trainshed.services.job_credentials import JobCredentials
from trainshed.services.platform import Platform

__all__ = ["CREDENTIAL_NAMES", "credential_variables", "platform_variables"]

# The variables that carry a job's temporary credentials, and which part of them each carries.
_CREDENTIALS = {
    "TRAINSHED_TOKEN": "token",
    "TRAINSHED_ACCESS_KEY": "access_key",
    "TRAINSHED_SECRET_KEY": "secret_key",
    "FAMILY_TOKEN": "token",
    "DLTS_JOB_TOKEN": "token",
    "ACCESS_KEY_ID": "access_key",
    "SECRET_ACCESS_KEY": "secret_key",
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
}
CREDENTIAL_NAMES = tuple(_CREDENTIALS)


def platform_variables(platform: Platform) -> dict[str, str]:
    """Where a job finds the platform: with network `platform` under the same ports on its own loopback."""
    settings = platform.settings
    scheme, host = ("https", job_host(settings)) if settings.serves_tls else ("http", "127.0.0.1")
    objects = f"{scheme}://{host}:{settings.obs_port}"
    return {
        "TRAINSHED_URL": f"{scheme}://{host}:{settings.port}",
        "TRAINSHED_OBS_URL": objects,
        "S3_ENDPOINT": objects.partition("://")[2],
        "S3_USE_HTTPS": "1" if settings.serves_tls else "0",
        "AWS_ENDPOINT_URL": objects,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def credential_variables(credentials: JobCredentials, own: Collection[str]) -> dict[str, str]:
    """A job's credentials as variables; `own` names those that the job's owner has set."""
    return {name: getattr(credentials, _CREDENTIALS[name]) for name in keep_not_overridden(_CREDENTIALS, own)}
