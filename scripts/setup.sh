#!/usr/bin/env bash
# Make .venv and install what is needed: `setup.sh run` to run the platform, `setup.sh dev` to work on it as well.
# Quick when all of it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose="${1:-dev}"

say() { printf '%s\n' "$*" >&2; }
fail() { say "Error: $1"; say "Next:  $2"; exit 1; }

find_python() {
    # PYTHON wins; else the newest that is there.
    local candidate
    for candidate in ${PYTHON:-} python3.14 python3.13 python3.12 python3.11 python3 python; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    # Debian's python3 comes without venv; where we may, add it and look once more.
    if [ -z "${retried:-}" ] && install_packages python3 python3-venv; then
        retried=1 find_python
        return
    fi
    fail "Python 3.11 or newer with the module venv is needed and was not found." \
        "Install it (Debian, Ubuntu: apt-get install python3 python3-venv), or set PYTHON to its path."
}

install_packages() {
    # Install system packages where we may; else say exactly what to install.
    local wanted=("$@")
    local command="apt-get install -y ${wanted[*]}"
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        say "Installing ${wanted[*]} ..."
        # Many images ship without package lists; elsewhere those that are there do.
        if ! apt_get install -y --no-install-recommends "${wanted[@]}"; then
            apt_get update || true
            apt_get install -y --no-install-recommends "${wanted[@]}" || return 1
        fi
        return 0
    fi
    say "Not installed here: ${wanted[*]}."
    say "Install them as root: $command (or what your distribution calls them)."
    return 1
}

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >/dev/null; }

has_postgres() { command -v pg_ctl >/dev/null || ls /usr/lib/postgresql/*/bin/pg_ctl >/dev/null 2>&1; }
has_slurm() { for program in slurmctld slurmd munged sbatch; do PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null || return 1; done; }
has_accounting() { for program in slurmdbd mariadbd mariadb mariadb-install-db; do PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null || return 1; done; }
has_browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }

missing=()
command -v bwrap >/dev/null || missing+=(bubblewrap)
command -v git >/dev/null || missing+=(git)
if [ "${#missing[@]}" -gt 0 ]; then
    install_packages "${missing[@]}" ||
        fail "Jobs need bubblewrap for their sandbox, and code needs git." \
            "Install: ${missing[*]}. (To run jobs without a sandbox: allow_unsandboxed in docs/settings.md.)"
fi
if [ "$purpose" = dev ]; then
    missing=()
    has_postgres || missing+=(postgresql)
    has_browser || missing+=(chromium)
    command -v chromedriver >/dev/null || missing+=(chromium-driver)
    command -v ssh >/dev/null || missing+=(openssh-client)
    command -v mpirun >/dev/null || missing+=(openmpi-bin)
    command -v rsync >/dev/null || missing+=(rsync)
    PATH="$PATH:/usr/sbin" command -v ip >/dev/null || missing+=(iproute2)
    has_slurm || missing+=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)
    has_accounting || missing+=(slurmdbd mariadb-server-core mariadb-client-core)
    command -v sudo >/dev/null || missing+=(sudo)
    if [ "${#missing[@]}" -gt 0 ] && ! install_packages "${missing[@]}"; then
        [ "${CI:-}" != true ] || fail "Tests need ${missing[*]}." "Install them on the machine that runs the tests."
        say "Going on; the tests that need them will fail."
    fi
fi

extras=server
[ "$purpose" != dev ] || extras=server,dev
# What was installed from; a change of pyproject.toml or of the purpose installs again.
stamp=".venv/.installed-$extras"
for known in ".venv/.installed-server,dev" "$stamp"; do
    if [ -f "$known" ] && [ -x .venv/bin/trainshed ] && cmp -s pyproject.toml "$known"; then
        exit 0
    fi
done
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python="$(find_python)"
    say "Making .venv with $("$python" --version) ..."
    "$python" -m venv --clear .venv
fi
say "Installing Trainshed and its packages into .venv ..."
# pip, not uv: it finds the packages by the settings that the machine has for pip, and compiles them.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]" ||
    fail "The packages could not be installed." "Check the network, or pip's index settings (pip config list)."
cp pyproject.toml "$stamp"
