#!/usr/bin/env bash
# Writes .env for docker-compose.yaml: .env.example, with random secrets where it has none. Keeps one that is there.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-.env}
if [[ -e $target ]]; then
  printf '%s is there already: kept\n' "$target"
  exit
fi
umask 077
while IFS= read -r line; do
  case $line in
    AIRFLOW_FERNET_KEY=) line+=$(head -c 32 /dev/urandom | base64 | tr '+/' '-_') ;;
    [A-Z]*=) line+=$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n') ;;
  esac
  printf '%s\n' "$line"
done <.env.example >"$target"
printf 'wrote %s; log in to Airflow as admin with the AIRFLOW_ADMIN_PASSWORD in it\n' "$target"
