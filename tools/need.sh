#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# need.sh PACKAGE[:FILE]... installs the Debian packages whose FILE does not exist (always, without
# one), through apt-get as root or with sudo. Where that may not be, says what to install and fails.
set -eu

missing=""
for item in "$@"; do
  package=${item%%:*}
  file=${item#"$package"}
  if [ -z "$file" ] || [ ! -e "${file#:}" ]; then
    missing="$missing $package"
  fi
done
[ -n "$missing" ] || exit 0

if command -v apt-get >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then
    as_root=""
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo"
  else
    as_root="cannot"
  fi
  if [ "$as_root" != cannot ]; then
    echo "installing Debian packages:$missing"
    $as_root apt-get update -qq || echo "apt-get update failed; trying with the lists at hand" >&2
    # shellcheck disable=SC2086 # words on purpose
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing
    exit 0
  fi
fi
echo "These packages are missing and cannot be installed from here:$missing" >&2
echo "Install them (Debian's names), for example: sudo apt-get install$missing" >&2
exit 1
