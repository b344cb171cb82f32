#!/usr/bin/env bash
# A Debian from nothing (debootstrap's minbase with python3, python3-venv, make, git), a clone of this
# repository there, and the two commands of the README, as root: `make fresh`. Ends with what they end with.
#
#   tools/fresh.sh [COMMAND ...]        default: 'make demo' 'make test'
#
# Needs root and debootstrap. FRESH_ROOT names a folder that stays (else one that is removed afterwards),
# FRESH_SUITE the release (bookworm), FRESH_MIRROR where debootstrap gets it, FRESH_BIND further folders that are
# seen there (indexes on this machine's disk). pip is configured there as it is here, and shares PIP_CACHE_DIR.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "fresh: a new root is made by root alone" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "fresh: apt-get install -y debootstrap" >&2; exit 2; }
[ $# -gt 0 ] || set -- "make demo" "make test"

kept=${FRESH_ROOT:-}
root=${kept:-$(mktemp -d /var/tmp/dovetail-fresh.XXXXXX)}
[ -n "$kept" ] || trap 'rm -rf --one-file-system "$root"' EXIT
if [ ! -x "$root/usr/bin/git" ]; then
    packages=python3,python3-venv,make,git,ca-certificates
    debootstrap --variant=minbase --include=$packages "${FRESH_SUITE:-bookworm}" "$root" ${FRESH_MIRROR:+"$FRESH_MIRROR"} >/dev/null
fi

# What pip knows of this machine, and how its names are resolved.
for file in /etc/pip.conf /etc/xdg/pip "${XDG_CONFIG_HOME:-$HOME/.config}/pip" "$HOME/.pip" /etc/resolv.conf /etc/hosts \
    "${SSL_CERT_FILE:-}" "${PIP_CERT:-}"; do
    if [ -n "$file" ] && [ -e "$file" ]; then
        mkdir -p "$root$(dirname "$file")"
        cp -RL "$file" "$root$(dirname "$file")/"
    fi
done
rm -rf "$root/dovetail"
git clone --quiet --no-hardlinks "$here" "$root/dovetail"

# Mounts and processes of its own: both are gone when the commands have ended, however they do.
export root
status=0
unshare --mount --pid --fork --kill-child bash -euc '
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    for folder in ${FRESH_BIND:-} ${PIP_CACHE_DIR:-} ${PIP_FIND_LINKS:-}; do
        if [ -d "$folder" ]; then mkdir -p "$root$folder" && mount --rbind "$folder" "$root$folder"; fi
    done
    home=~root
    names="HOME=$home PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8"
    for command in "$@"; do
        echo "fresh: \$ $command"
        began=$SECONDS
        env -i $names $(env | grep -E "^(PIP_|SSL_CERT_|https?_proxy|no_proxy|DOVETAIL_TEST)" || true) \
            chroot "$root" bash -c "cd /dovetail && $command"
        echo "fresh: $command ended well after $((SECONDS - began)) s"
    done
' fresh "$@" || status=$?
[ $status = 0 ] || echo "fresh: that ended with $status" >&2
exit $status
