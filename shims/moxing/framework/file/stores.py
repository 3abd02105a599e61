"""Which store a bucket lies in: the platform's, through the broker of the job, or any service over HTTP."""

import os

from moxing.framework.file.broker_store import BrokerStore, find_broker
from moxing.framework.file.errors import MoxFileRespException, Response
from moxing.framework.file.http_store import HttpSettings, HttpStore

__all__ = ["set_auth", "store_of"]

_asked = {}
_stores = {}
_reached = {}


def set_auth(ak=None, sk=None, server=None, port=None, is_secure=None, ssl_verify=None, **others):
    """Say who you are and where the store is; what is not said comes from the environment.

    All names that MoXing knows are taken: those that have no meaning here are left alone.
    """
    given = dict(others, ak=ak, sk=sk, server=server, port=port, is_secure=is_secure, ssl_verify=ssl_verify)
    _asked.update((name, value) for name, value in given.items() if value is not None)
    _stores.clear()
    _reached.clear()


def store_of(bucket):
    """The store that a bucket lies in.

    Inside a job that is the platform's own. A bucket that the job's workspace does not have may be shared with
    it, or belong to another service that the script named: then the way is HTTP.
    """
    broker = find_broker()
    if not broker:
        return _http()
    found = _reached.get((broker, bucket))
    if found is None:
        if ("broker", broker) not in _stores:
            _stores["broker", broker] = BrokerStore(broker)
        found = _stores["broker", broker]
        try:
            found.info(bucket, "")
        except MoxFileRespException as error:
            if error.resp.status != 404 or not _has_credentials():
                raise
            found = _http()
        _reached[broker, bucket] = found
    return found


def _http():
    if "http" not in _stores:
        _stores["http"] = HttpStore(_read_settings())
    return _stores["http"]


def _has_credentials():
    return bool(_value("ak", "ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID", "TRAINSHED_ACCESS_KEY"))


def _value(name, *variables):
    if name in _asked:
        return str(_asked[name])
    for variable in variables:
        if os.environ.get(variable):
            return os.environ[variable]
    return ""


def _is_on(name, variable, default):
    value = _value(name, variable).lower()
    return default if not value else value not in ("0", "false", "no", "off")


def _read_settings():
    server = _value("server", "S3_ENDPOINT", "AWS_ENDPOINT_URL", "TRAINSHED_OBS_URL")
    if not server:
        raise MoxFileRespException(
            Response(
                400,
                "no_endpoint",
                "Where the store is was not said: set S3_ENDPOINT, ACCESS_KEY_ID and SECRET_ACCESS_KEY, "
                "or call mox.file.set_auth(server=..., ak=..., sk=...).",
            )
        )
    if "port" in _asked and server.rpartition(":")[2] != str(_asked["port"]):
        server = "{}:{}".format(server, _asked["port"])
    settings = HttpSettings(
        server,
        _value("ak", "ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID", "TRAINSHED_ACCESS_KEY"),
        _value("sk", "SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "TRAINSHED_SECRET_KEY"),
        _value("token", "SECURITY_TOKEN", "AWS_SESSION_TOKEN"),
        secure=_is_on("is_secure", "S3_USE_HTTPS", True),
        verify=_is_on("ssl_verify", "S3_VERIFY_SSL", True),
        region=_value("region", "S3_REGION", "AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1",
    )
    if "path_style" in _asked:
        settings.path_style = bool(_asked["path_style"])
    settings.tries = int(_asked.get("retry", settings.tries))
    settings.wait = float(_asked.get("retry_wait", settings.wait))
    settings.timeout = float(_asked.get("client_timeout", settings.timeout))
    return settings
