#!/bin/sh
# Debian packages that the emulated and browser groups and the sanitizer tests use; installed where root and apt allow it.
# Without them edgec itself works: zig, from PyPI, is the compiler.
set -eu
missing=""
command -v qemu-aarch64 >/dev/null 2>&1 || missing="$missing qemu-user"
command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v qemu-system-aarch64 >/dev/null 2>&1 || missing="$missing qemu-system-arm"
command -v ssh-keygen >/dev/null 2>&1 || missing="$missing openssh-client"
command -v node >/dev/null 2>&1 || missing="$missing nodejs"
command -v mke2fs >/dev/null 2>&1 || [ -x /sbin/mke2fs ] || missing="$missing e2fsprogs"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing$missing"
    # shellcheck disable=SC2086 (a list of names)
    if apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null; then
        exit 0
    fi
fi
echo "not installed:$missing; the tests and devices that need them will say so (try: sudo apt-get install$missing)" >&2
