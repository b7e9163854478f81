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
timeout=60  # seconds: nginx ends its old workers after 40, a node its purchases after 35

compose() {
    ${DOCKER_COMPOSE:-docker compose} "$@"
}

# wait_until CONDITION COMMAND...: wait until the command succeeds. After $timeout seconds print the
# CONDITION, and end with 1.
wait_until() {
    condition=$1
    shift
    deadline=$(($(date +%s) + timeout))
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || {
            echo "gave up after $timeout s of waiting until $condition" >&2
            exit 1
        }
        sleep 0.5
    done
}

# use_nodes SED: let nginx use its original list of nodes, edited by a sed script. An empty script
# restores the list. The reload starts new workers; the old ones finish their requests and end.
use_nodes() {
    compose $files exec -T nginx sh -c \
        "sed -e '$1' /etc/nginx/nodes.conf > /tmp/nodes.conf && nginx -q -t && nginx -s reload"
    wait_until "nginx's old workers are gone" has_no_old_workers
}

has_no_old_workers() {
    # The brackets in the pattern keep grep from finding its own command line.
    ! compose $files exec -T nginx sh -c \
        'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" " " | grep -q "worker process [i]s shutting down"'
}

# is_healthy NODE: succeed if the node has containers, and Docker finds each of them healthy.
is_healthy() {
    ids=$(compose $files ps -q "$1")
    [ -n "$ids" ] && for id in $ids; do
        docker inspect -f '{{.State.Health.Status}}' "$id" | grep -qx healthy || return 1
    done
}

report_excluded_node() {
    status=$?
    trap - EXIT
    if [ -n "$excluded_node" ]; then
        echo "$excluded_node: still out of nginx; the other node sells. Run this again to put it back" >&2
    fi
    exit "$status"
}

files=$*  # the options -f
excluded_node=""
trap report_excluded_node EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "migrating the database"
compose $files run --rm migrate
for node in web-a web-b; do
    count=$(compose $files ps -q "$node" | wc -l)
    [ "$count" -gt 0 ] || count=1  # a container that has exited is not listed
    echo "$node: taken out of nginx"
    excluded_node=$node
    use_nodes "s/^server $node:8000 .*/server $node:8000 resolve down;/"
    echo "$node: restarting"
    compose $files up -d --no-deps --force-recreate --scale "$node=$count" "$node"
    wait_until "$node is healthy" is_healthy "$node"
    use_nodes ""
    excluded_node=""
    echo "$node: back in nginx"
done
