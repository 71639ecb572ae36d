#!/usr/bin/env bash
# The README's commands under Debian 13, whose Python 3.13 gets the newest JAX, in a chroot of its own.
#
#   bash tests/machines/debian.sh whole   both commands, as they stand in the README
#   bash tests/machines/debian.sh part    the demonstration, kernels beside references, models, golden values; one install
#
# Needs root, debootstrap (installed where apt-get can) and a network; without them it says so and ends with status 0.
# The root is made in a temporary folder; ROOT=DIR keeps it there for the next run.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
what=${1:-whole}

skip() {
    echo "Debian 13 was not tried: $1"
    exit 0
}

[ "$(id -u)" = 0 ] || skip "needs root"
command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq debootstrap; } >/dev/null 2>&1 ||
    skip "no debootstrap"
unshare --mount true 2>/dev/null || skip "no mount namespace can be made"

if [ -z "${ROOT:-}" ]; then
    ROOT=$(mktemp -d)
    trap 'rm -rf "$ROOT" "$ROOT.log"' EXIT
fi
if [ ! -e "$ROOT/usr/bin/python3.13" ]; then
    debootstrap --variant=minbase --include=ca-certificates,python3-venv,python3-dev,gcc,git trixie "$ROOT" \
        >"$ROOT.log" 2>&1 || skip "debootstrap: $(tail -n 1 "$ROOT.log")"
fi
rm -rf "$ROOT/tdd"
mkdir -p "$ROOT/etc/ssl/certs" "$ROOT/tdd"
cp -L /etc/resolv.conf "$ROOT/etc/resolv.conf"
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/"
git -C "$checkout" ls-files -z | tar -C "$checkout" --null -T - -cf - | tar -C "$ROOT/tdd" -xf -

demonstration=$(grep --max-count=1 'tdd demo' "$checkout/README.md")
tests=$(grep --max-count=1 'python -m pytest' "$checkout/README.md")
commands="($demonstration) && rm -rf .venv && ($tests)"
if [ "$what" = part ]; then
    chosen="-q tests/contract tests/models tests/procedures -k 'test_reference or families or golden'"
    install=${tests%% && .venv/bin/python*}
    commands="$install && .venv/bin/tdd demo && ${tests#"$install" && } $chosen"
fi
certificates=/etc/ssl/certs/ca-certificates.crt
# the mounts end with the namespace
ROOT=$ROOT COMMANDS="$commands" CERTIFICATES=$certificates unshare --mount bash -euc '
    mount --make-rprivate /
    mount -t proc proc "$ROOT/proc"
    mount --rbind /sys "$ROOT/sys"
    mount --rbind /dev "$ROOT/dev"
    mkdir -p "$ROOT/dev/shm"
    mount -t tmpfs tmpfs "$ROOT/dev/shm"
    exec chroot "$ROOT" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 PIP_QUIET=1 XLA_FLAGS="${XLA_FLAGS:-}" \
        PIP_CERT="$CERTIFICATES" SSL_CERT_FILE="$CERTIFICATES" PIP_DEFAULT_TIMEOUT=180 \
        bash -euc "cd /tdd; $COMMANDS"
'
