#!/bin/sh
# Restarts the nodes one after the other, under load, without a lost answer.
# usage: deploy/docker/rolling_restart.sh [-f COMPOSE_FILE]...   (what you give `docker compose`)
#
# First the database is migrated: a node of new code is ready only then. The nodes of the old code go
# on selling on the migrated database, so a migration may add to it and take nothing away.
# For each node: nginx sends it nothing new; what it has begun ends; it is made anew from the image
# that is there (build or pull first); when it is healthy, nginx sends to it again. A node that does
# not become healthy stays out, and the script ends with 1 before it touches the next one. Whatever
# ends it early, it says which node is still out.
# DOCKER_COMPOSE is the command, `docker compose`.
set -eu
cd "$(dirname "$0")/../.."
longest=60  # seconds: nginx ends its old workers after 40, a node its purchases after 35

compose() {
    ${DOCKER_COMPOSE:-docker compose} "$@"
}

# until_so WHAT COMMAND...: wait, or end with 1.
until_so() {
    what=$1
    shift
    deadline=$(($(date +%s) + longest))
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || { echo "not within $longest s: $what" >&2; exit 1; }
        sleep 0.5
    done
}

# nodes SED: what nginx sends to from now on. Reading the configuration anew makes new workers; the
# old ones finish what they have begun and are gone.
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

echo "the database: migrated"
compose $files run --rm migrate
for node in web-a web-b; do
    count=$(compose $files ps -q "$node" | wc -l)
    echo "$node: nginx sends it nothing new"
    out=$node
    nodes "s/^server $node:8000 .*/server $node:8000 resolve down;/"
    echo "$node: made anew"
    compose $files up -d --no-deps --force-recreate --scale "$node=$count" "$node"
    until_so "$node is healthy" is_healthy "$node"
    nodes ""
    out=""
    echo "$node: back"
done
