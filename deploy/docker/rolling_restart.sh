#!/bin/sh
# Restarts the nodes one after the other, under load, without losing an answer.
# usage: deploy/docker/rolling_restart.sh [-f COMPOSE_FILE]...   (the options of `docker compose`)
#
# First it migrates the database, because new code is not ready before. Meanwhile the old code still
# sells on the migrated database, so a migration may add tables and columns, but not remove any.
#
# Then, for each node:
#   1. nginx sends no new requests to it, and the node answers those that it has.
#   2. Its container is created again from the local image (build or pull it first).
#   3. When the node is healthy, nginx sends requests to it again.
#
# If a node does not become healthy, it stays out of nginx, and the script ends with 1 and does not
# restart the next one. If the script is interrupted, it says which node is still out of nginx.
#
# DOCKER_COMPOSE is the command to use instead of `docker compose`.
set -eu
cd "$(dirname "$0")/../.."
longest=60  # seconds: nginx ends its old workers after 40, a node its purchases after 35

compose() {
    ${DOCKER_COMPOSE:-docker compose} "$@"
}

# until_so WHAT COMMAND...: wait until the command succeeds. After $longest seconds end with 1.
until_so() {
    what=$1
    shift
    deadline=$(($(date +%s) + longest))
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || { echo "not within $longest s: $what" >&2; exit 1; }
        sleep 0.5
    done
}

# nodes SED: edit nginx's list of nodes with sed, and reload nginx. The reload starts new workers. The
# old workers finish their requests and end.
nodes() {
    compose $files exec -T nginx sh -c \
        "sed -e '$1' /etc/nginx/nodes.conf > /tmp/nodes.conf && nginx -q -t && nginx -s reload"
    until_so "nginx's old workers are gone" no_old_workers
}

no_old_workers() {
    ! compose $files exec -T nginx sh -c \
        'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" " " | grep -q "worker process [i]s shutting down"'
}

is_healthy() {
    ids=$(compose $files ps -q "$1")
    [ -n "$ids" ] && for id in $ids; do
        docker inspect -f '{{.State.Health.Status}}' "$id" | grep -qx healthy || return 1
    done
}

say_what_is_left() {
    status=$?
    trap - EXIT
    if [ -n "$out" ]; then
        echo "$out: still out of nginx; the other node sells. Run this again to put it back" >&2
    fi
    exit "$status"
}

files=$*
out=""
trap say_what_is_left EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "migrating the database"
compose $files run --rm migrate
for node in web-a web-b; do
    count=$(compose $files ps -q "$node" | wc -l)
    echo "$node: taken out of nginx"
    out=$node
    nodes "s/^server $node:8000 .*/server $node:8000 resolve down;/"
    echo "$node: restarting"
    compose $files up -d --no-deps --force-recreate --scale "$node=$count" "$node"
    until_so "$node is healthy" is_healthy "$node"
    nodes ""
    out=""
    echo "$node: back in nginx"
done
