#!/bin/sh
# Creates the secrets of the stack at random, and copies to each service those that it needs.
# usage: make_secrets.sh FOLDER [GIVEN]
#   FOLDER/vault      all secrets; existing ones are kept
#   FOLDER/SERVICE    the secrets of one service, readable only by its user
#   GIVEN             a folder of your own secrets, which are used instead of random ones
# REDIS_ACL (demo, production, counter or reserve) chooses one of the files redis.*.acl.
# TLS_NAME is the host name in nginx's certificate, unless GIVEN contains tls.crt and tls.key.
set -eu
umask 077
templates=$(cd "$(dirname "$0")" && pwd)
given=${2:-/nowhere}
cd "$1"
mkdir -p vault shop migrate postgres redis locust nginx

random_secret() {
    od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'
}

# write_secret NAME VALUE: write VALUE to the vault, or the user's own secret if GIVEN has one.
# Without GIVEN's, an existing secret stays. The file gets its name when it is complete.
write_secret() {
    if [ -s "$given/$1" ]; then
        tr -d '\n' < "$given/$1" > "vault/$1.partial"
    elif [ -s "vault/$1" ]; then
        return
    else
        printf %s "$2" > "vault/$1.partial"
    fi
    mv "vault/$1.partial" "vault/$1"
}

# make_certificate NAME HOSTS [OPTION...]: create NAME.crt and NAME.key in the vault, unless they
# exist. GIVEN's are used if it has them. The OPTIONs are openssl's; without -CA it is self-signed.
make_certificate() {
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

# copy_secrets SERVICE USER NAME...: copy secrets to a service, readable only by the user id USER. If
# the caller is not root, as in a test, the copies belong to the caller.
copy_secrets() {
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
    write_secret "$name" "$(random_secret)"
done
make_certificate ca "DNS:oversold" -addext keyUsage=critical,keyCertSign,cRLSign  # Python 3.13 requires keyUsage
signed_by_ca="-CA vault/ca.crt -CAkey vault/ca.key -addext basicConstraints=critical,CA:FALSE"
make_certificate postgres "DNS:postgres" $signed_by_ca
make_certificate redis "DNS:redis" $signed_by_ca
make_certificate tls "DNS:${TLS_NAME:-localhost},DNS:nginx,IP:127.0.0.1" \
    -addext basicConstraints=critical,CA:FALSE

hash=$(sha256sum < vault/redis_password)
sed -e '/^$/d' -e '/^#/d' -e "s/PASSWORD_SHA256/${hash%% *}/" \
    "$templates/redis.${REDIS_ACL:-demo}.acl" > vault/users.acl
(cd vault && for role in migrate app; do  # in a pgpass file, `:` and `\` need a backslash
    printf '*:*:*:oversold_%s:%s' "$role" "$(sed 's/[\\:]/\\&/g' "${role}_password")" > "pgpass_$role"
done)

# The user ids of the processes in the images of these services.
shop=10001 postgres=999 redis=999 nginx=101
copy_secrets shop $shop secret_key restock_token metrics_token redis_password pgpass_app ca.crt
copy_secrets migrate $shop pgpass_migrate ca.crt
copy_secrets postgres $postgres postgres_password migrate_password app_password postgres.crt postgres.key
copy_secrets redis $redis users.acl redis.crt redis.key ca.crt
copy_secrets locust $shop restock_token
copy_secrets nginx $nginx tls.crt tls.key
