#!/bin/sh
# Run a command in a network namespace that has loopback and nothing else, and end with its exit code.
#
#   scripts/loopback.sh COMMAND [ARGUMENT...]
#
# For what listens on the network card, or asks outside hosts, whatever its settings say. Needs Linux, and root or user
# namespaces. Where there is no such namespace to be had, nothing is run and the exit code is 125.
set -eu

if [ $# -eq 0 ]; then
  echo "usage: $0 COMMAND [ARGUMENT...]" >&2
  exit 2
fi

for way in -n -rn; do # as root; as anybody who may be root in a user namespace
  if unshare "$way" ip link set lo up 2>/dev/null; then
    exec unshare "$way" sh -c 'ip link set lo up && exec "$@"' loopback "$@"
  fi
done

echo "$0: no network namespace to be had, so nothing was run; it takes unshare (util-linux), ip (iproute2), and root or user namespaces" >&2
exit 125
