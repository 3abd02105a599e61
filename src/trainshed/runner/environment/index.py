"""Where packages come from: pip's own settings, read the way pip reads them and handed to uv."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

__all__ = ["PackageIndex", "mask_credentials", "read_pip_settings"]

_PASSED_ON = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True)
class PackageIndex:
    """Package indexes and how to reach them; an empty `index_url` is the installer's own default."""

    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    cert: str = ""
    trusted_hosts: tuple[str, ...] = ()
    timeout: int = 60
    proxy: str = ""
    # Variables of the platform's own environment that concern the network.
    passed_on: tuple[tuple[str, str], ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """Every index and every place of links."""
        return tuple(url for url in (self.index_url, *self.extra_index_urls, *self.find_links) if url)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Passwords within the URLs, which must not reach a log."""
        found = []
        for url in (*self.urls, self.proxy, *(value for _, value in self.passed_on)):
            parts = _split(url)
            if parts and parts.password:
                found += [parts.password, unquote(parts.password)]
            elif parts and parts.username:
                found += [parts.username, unquote(parts.username)]
        return tuple(dict.fromkeys(found))

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """Host and port of every index that is reached over the network."""
        found = []
        for url in self.urls:
            parts = _split(url)
            if parts and parts.scheme in ("http", "https") and parts.hostname:
                found.append((parts.hostname.lower(), parts.port or (443 if parts.scheme == "https" else 80)))
        return tuple(dict.fromkeys(found))

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders of this machine that hold packages: they must be visible where packages are installed."""
        found: list[Path] = []
        for url in self.urls:
            path = _local_path(url)
            if path is None or not path.exists():
                continue
            found.append(path)
            if path.name == "simple":
                # The pages of such an index link to `../../files/` or `../../packages/`.
                beside = (path.parent / name for name in ("files", "packages"))
                found += [folder for folder in beside if folder.is_dir()]
        return tuple(dict.fromkeys(found))

    def uv_variables(self) -> dict[str, str]:
        """The same settings as variables for uv. They may hold passwords: never print them."""
        variables = dict(self.passed_on)
        # pip takes the best version of all indexes; uv would stop at the first that knows the name.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
        variables["UV_HTTP_TIMEOUT"] = str(self.timeout)
        if not self.no_index:
            if self.index_url:
                variables["UV_DEFAULT_INDEX"] = self.index_url
            if self.extra_index_urls:
                variables["UV_INDEX"] = " ".join(self.extra_index_urls)
        links = [link for link in self.find_links if (path := _local_path(link)) is None or path.exists()]
        if links:
            variables["UV_FIND_LINKS"] = ",".join(links)
        if self.cert:
            variables["SSL_CERT_FILE"] = self.cert
        if self.trusted_hosts:
            variables["UV_INSECURE_HOST"] = " ".join(self.trusted_hosts)
        if self.proxy:
            proxy = self.proxy if "://" in self.proxy else f"http://{self.proxy}"
            variables |= {"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "ALL_PROXY": proxy}
        return variables

    def pip_variables(self) -> dict[str, str]:
        """The same settings as variables for the pip of a job: indexes on the network and without passwords."""
        if self.secrets:
            return {}
        variables = {}
        if self.index_url.startswith("http"):
            variables["PIP_INDEX_URL"] = self.index_url
        extra = [url for url in self.extra_index_urls if url.startswith("http")]
        if extra:
            variables["PIP_EXTRA_INDEX_URL"] = " ".join(extra)
        if self.trusted_hosts:
            variables["PIP_TRUSTED_HOST"] = " ".join(self.trusted_hosts)
        if self.proxy:
            variables["PIP_PROXY"] = self.proxy
        return variables

    def mask(self, text: str) -> str:
        """The text without the passwords of the indexes."""
        for secret in self.secrets:
            text = text.replace(secret, "****")
        return text


def read_pip_settings(
    variables: Mapping[str, str] | None = None,
    *,
    home: Path | None = None,
    prefix: Path | None = None,
    root: Path = Path("/"),
) -> PackageIndex:
    """pip's settings of this machine and user: files in pip's order, then PIP_* variables."""
    variables = os.environ if variables is None else variables
    home = Path(variables.get("HOME") or Path.home()) if home is None else home
    prefix = Path(sys.prefix) if prefix is None else prefix
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for file in _config_files(variables, home, prefix, root):
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        for section, values in sections.items():
            if parser.has_section(section):
                values.update({_key(name): value for name, value in parser.items(section)})
    values = sections["global"] | sections["install"]
    for name, value in variables.items():
        if name.startswith("PIP_") and value:
            values[_key(name.removeprefix("PIP_"))] = value
    timeout = values.get("timeout") or values.get("default-timeout") or ""
    return PackageIndex(
        index_url=values.get("index-url", values.get("pypi-url", "")).strip(),
        extra_index_urls=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        no_index=values.get("no-index", "").strip().lower() in ("1", "true", "yes", "on", "y", "t"),
        cert=values.get("cert", "").strip(),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        timeout=max(1, int(float(timeout))) if _is_number(timeout) else 60,
        proxy=values.get("proxy", "").strip(),
        passed_on=tuple(
            (name, value)
            for name in _PASSED_ON
            if (value := variables.get(name) or variables.get(name.lower(), ""))
        ),
    )


def mask_credentials(url: str) -> str:
    """A URL without its user and password."""
    parts = _split(url)
    if parts is None or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="****@" + parts.netloc.rpartition("@")[2]))


def _config_files(variables: Mapping[str, str], home: Path, prefix: Path, root: Path) -> Iterator[Path]:
    own = variables.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    for folder in reversed(variables.get("XDG_CONFIG_DIRS", str(root / "etc/xdg")).split(":")):
        if folder:
            yield Path(folder) / "pip" / "pip.conf"
    yield root / "etc/pip.conf"
    yield home / ".pip" / "pip.conf"
    yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield prefix / "pip.conf"
    if own:
        yield Path(own)


def _key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (an impossible port is only noticed when it is asked for)
    except ValueError:
        return None
    return parts


def _local_path(url: str) -> Path | None:
    if url.startswith("file:"):
        return Path(unquote(urlsplit(url).path))
    if "://" not in url:
        return Path(url).expanduser()
    return None


def _is_number(text: str) -> bool:
    try:
        return 0 < float(text) < 1e6
    except ValueError:
        return False
