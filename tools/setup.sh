#!/usr/bin/env bash
# setup.sh GROUP... - makes sure that the packages of these groups of
# tools/packages.txt are installed, and installs what is missing with apt-get
# when this user may (root, or sudo that asks nothing). Otherwise it prints
# the command that an administrator has to run, and exits 1.
#
# MANTA_SKIP_SETUP=1 skips it all: for distributions without dpkg.
set -euo pipefail

if [ "${MANTA_SKIP_SETUP:-0}" = 1 ]; then
    exit 0
fi
if [ $# -eq 0 ]; then
    echo "usage: setup.sh GROUP..." >&2
    exit 2
fi

list=$(dirname "$(readlink -f "$0")")/packages.txt

# The packages of the groups named in the arguments.
wanted() {
    local group package rest
    while read -r group package rest; do
        for g in "$@"; do
            if [ "$group" = "$g" ]; then echo "$package"; fi
        done
    done < <(grep -v '^#' "$list")
}

mapfile -t packages < <(wanted "$@")
if [ ${#packages[@]} -eq 0 ]; then
    echo "setup: no package of group $* in $list" >&2
    exit 2
fi

if ! command -v dpkg-query >/dev/null; then
    {
        echo "setup: this is no Debian or Ubuntu, so nothing is installed here. Needed, by their Debian names:"
        printf '    %s\n' "${packages[@]}"
        echo "With these installed, run again with MANTA_SKIP_SETUP=1."
    } >&2
    exit 1
fi

# dpkg-query exits 1 when one of them is unknown to it: that is an answer too.
# db:Status-Status is "installed" for what is wholly there.
installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
missing=()
for p in "${packages[@]}"; do
    if ! grep -qx "$p installed" <<<"$installed"; then missing+=("$p"); fi
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        {
            echo "setup: ${#missing[@]} packages are missing, and this user may not install them:"
            printf '    %s\n' "${missing[@]}"
            echo "As an administrator, run:"
            echo "    apt-get install --no-install-recommends ${missing[*]}"
        } >&2
        exit 1
    fi
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@" </dev/null
}

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A stale package list may still do, so only a failing install is an error.
apt update >"$log" 2>&1 || true
if ! apt install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get could not install: ${missing[*]}" >&2
    exit 1
fi
