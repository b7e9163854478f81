#!/bin/sh
# Makes every secret of the stack once, at random; what is there is kept.
# usage: make_secrets.sh FOLDER
set -eu
umask 077
cd "$1"

random() {
    od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'
}

# keep NAME VALUE: under another name until it is whole.
keep() {
    [ -s "$1" ] && return
    printf %s "$2" > "$1.partial"
    mv "$1.partial" "$1"
}

keep secret_key "$(random)"
keep restock_token "$(random)"
keep postgres_password "$(random)"
keep pgpass "*:*:*:oversold:$(cat postgres_password)"
