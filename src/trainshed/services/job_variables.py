"""The variables that tell a job where the platform is and who it is there."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from trainshed.dialects.store_variables import keep_not_overridden
from trainshed.services.certificates import job_host
from trainshed.services.job_credentials import JobCredentials
from trainshed.services.platform import Platform
from trainshed.services.public_urls import api_url, obs_url

__all__ = ["CREDENTIAL_NAMES", "credential_variables", "platform_variables", "remote_variables"]

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


def remote_variables(platform: Platform, network: str) -> dict[str, str]:
    """Where a job on another machine finds the platform.

    On the machine's own network (`open`), at the platform's public addresses. Behind a wall, on the job's own
    loopback under the same ports: by its public name where it has a certificate for that, else by address.
    """
    urls = []
    for url in (api_url(platform.settings), obs_url(platform.settings)):
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname if network == "open" or parts.scheme == "https" else "127.0.0.1"
        urls.append(f"{parts.scheme}://{f'[{host}]' if host and ':' in host else host}:{port}")
    return {
        "TRAINSHED_URL": urls[0],
        "TRAINSHED_OBS_URL": urls[1],
        "S3_ENDPOINT": urls[1].partition("://")[2],
        "S3_USE_HTTPS": "1" if urls[1].startswith("https") else "0",
        "AWS_ENDPOINT_URL": urls[1],
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def credential_variables(credentials: JobCredentials, own: Collection[str]) -> dict[str, str]:
    """A job's credentials as variables; `own` names those that the job's owner has set."""
    return {name: getattr(credentials, _CREDENTIALS[name]) for name in keep_not_overridden(_CREDENTIALS, own)}
