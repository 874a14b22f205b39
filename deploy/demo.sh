#!/bin/sh
# Starts `kernel run`, asks it what a newcomer asks, shows commands and answers, and stops it again.
set -eu
cd "$(dirname "$0")/.."

url=http://127.0.0.1:8000
log=$(mktemp)
server=

finish() {
    if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
        kill -TERM "$server"
        wait "$server" || true
    fi
    rm -f "$log"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    printf 'demo: %s\n' "$1" >&2
    cat "$log" >&2
    exit 1
}

show() {
    printf '\n$ %s\n' "$*"
    eval "$*" || fail "the command above failed"
    printf '\n'
}

command -v curl >/dev/null || fail "curl is needed"
if curl --silent --output /dev/null --max-time 2 "$url/livez"; then
    fail "something already answers on $url: stop it first"
fi

printf '$ kernel run\n'
.venv/bin/kernel run >"$log" 2>&1 </dev/null &
server=$!

left=180
until curl --silent --fail --output /dev/null --max-time 2 "$url/health"; do
    kill -0 "$server" 2>/dev/null || fail "the kernel ended before it was ready"
    left=$((left - 1))
    [ "$left" -gt 0 ] || fail "the kernel was not ready after three minutes"
    sleep 1
done
cat "$log"

ask='"model":"smollm2","max_tokens":40,"messages":[{"role":"user","content":"Say hello"}]'
show "curl -sS --fail-with-body --max-time 60 $url/v1/models"
show "curl -sS --fail-with-body --max-time 60 $url/v1/chat/completions -d '{$ask}'"
show "curl -sSN --fail-with-body --max-time 60 $url/v1/chat/completions -d '{$ask,\"stream\":true}'"
