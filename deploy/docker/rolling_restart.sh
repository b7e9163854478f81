#!/bin/sh
# Restarts the nodes one after the other, under load, without a lost answer.
# usage: deploy/docker/rolling_restart.sh [-f COMPOSE_FILE]...   (what you give `docker compose`)
#
# For each node: nginx sends it nothing new; what it has begun ends; it is made anew from the image
# that is there (build or pull first); when it is healthy, nginx sends to it again. A node that does
# not become healthy stays out, and the script ends with 1 before it touches the next one.
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

files=$*
for node in web-a web-b; do
    count=$(compose $files ps -q "$node" | wc -l)
    echo "$node: nginx sends it nothing new"
    nodes "s/^server $node:8000 .*/server $node:8000 resolve down;/"
    echo "$node: made anew"
    compose $files up -d --no-deps --force-recreate --scale "$node=$count" "$node"
    until_so "$node is healthy" is_healthy "$node"
    nodes ""
    echo "$node: back"
done
