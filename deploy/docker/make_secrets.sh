#!/bin/sh
# Creates the secrets of the stack at random, and gives each service copies of those that it needs.
# usage: make_secrets.sh FOLDER [GIVEN]
#   FOLDER/vault      all secrets; existing ones are kept
#   FOLDER/SERVICE    the secrets of one service, readable only by its user
#   GIVEN             a folder of your own secrets, which are used instead of random ones
# REDIS_ACL (demo, production or reserve) chooses one of the files redis.*.acl.
# TLS_NAME is the host name in nginx's certificate, unless GIVEN contains tls.crt and tls.key.
set -eu
umask 077
templates=$(cd "$(dirname "$0")" && pwd)
given=${2:-/nowhere}
cd "$1"
mkdir -p vault shop migrate postgres redis locust nginx

random() {
    od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'
}

# keep NAME VALUE: write a secret to the vault. The file gets its name when it is complete.
keep() {
    if [ -s "$given/$1" ]; then
        tr -d '\n' < "$given/$1" > "vault/$1.partial"
    elif [ -s "vault/$1" ]; then
        return
    else
        printf %s "$2" > "vault/$1.partial"
    fi
    mv "vault/$1.partial" "vault/$1"
}

# certificate NAME HOSTS [-CA ...]: create NAME.crt and NAME.key. Without -CA it is self-signed.
certificate() {
    name=$1 hosts=$2
    shift 2
    if [ -s "$given/$name.crt" ]; then
        cp "$given/$name.crt" "$given/$name.key" vault/
    elif [ ! -s "vault/$name.crt" ]; then
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
            -subj "/CN=oversold $name" -addext "subjectAltName=$hosts" "$@" \
            -keyout "vault/$name.key" -out "vault/$name.crt.partial" 2>/dev/null
        mv "vault/$name.crt.partial" "vault/$name.crt"
    fi
}

# give SERVICE USER NAME...: copy secrets for a service, readable only by that user. In a test, which
# is not root, the copies stay the caller's.
give() {
    service=$1 user=$2
    shift 2
    for name; do
        rm -f "$service/$name.partial"  # an interrupted run may have left another user's file
        cp "vault/$name" "$service/$name.partial"
        chmod 0400 "$service/$name.partial"
        [ "$(id -u)" != 0 ] || chown "$user:$user" "$service/$name.partial"
        mv -f "$service/$name.partial" "$service/$name"
    done
    chmod 0755 "$service"  # only the service mounts this volume, and its files are private
}

for name in secret_key restock_token metrics_token redis_password \
    postgres_password migrate_password app_password; do
    keep "$name" "$(random)"
done
certificate ca "DNS:oversold" -addext keyUsage=critical,keyCertSign,cRLSign  # Python 3.13 requires keyUsage
leaf="-CA vault/ca.crt -CAkey vault/ca.key -addext basicConstraints=critical,CA:FALSE"
certificate postgres "DNS:postgres" $leaf
certificate redis "DNS:redis" $leaf
certificate tls "DNS:${TLS_NAME:-localhost},DNS:nginx,IP:127.0.0.1" \
    -addext basicConstraints=critical,CA:FALSE

hash=$(sha256sum < vault/redis_password)
sed -e '/^$/d' -e '/^#/d' -e "s/PASSWORD_SHA256/${hash%% *}/" \
    "$templates/redis.${REDIS_ACL:-demo}.acl" > vault/users.acl
(cd vault && for role in migrate app; do  # in this file, libpq requires a backslash before `:` and `\`
    printf '*:*:*:oversold_%s:%s' "$role" "$(sed 's/[\\:]/\\&/g' "${role}_password")" > "pgpass_$role"
done)

shop=10001 postgres=999 redis=999 nginx=101
give shop $shop secret_key restock_token metrics_token redis_password pgpass_app ca.crt
give migrate $shop pgpass_migrate ca.crt
give postgres $postgres postgres_password migrate_password app_password postgres.crt postgres.key
give redis $redis users.acl redis.crt redis.key ca.crt
give locust $shop restock_token
give nginx $nginx tls.crt tls.key
