#!/bin/sh
# Run a command in a network namespace that has only the loopback device; exit with its exit code.
#
#   scripts/loopback.sh COMMAND [ARGUMENT...]
#
# For programs that listen on the network card or contact other hosts whatever their settings say.
# Needs Linux, and root or user namespaces. If no such namespace can be created, the command is not
# run and the exit code is 125.
set -eu

if [ $# -eq 0 ]; then
  echo "usage: $0 COMMAND [ARGUMENT...]" >&2
  exit 2
fi

for flag in -n -rn; do # as root; as a user who may be root in a user namespace
  if unshare "$flag" ip link set lo up 2>/dev/null; then
    exec unshare "$flag" sh -c 'ip link set lo up && exec "$@"' loopback "$@"
  fi
done

echo "$0: cannot create a network namespace, so the command was not run;" \
  "install unshare (util-linux) and ip (iproute2), and run as root or allow user namespaces" >&2
exit 125
