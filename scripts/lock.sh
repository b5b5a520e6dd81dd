#!/usr/bin/env bash
# Compiles every file in locks/ from pyproject.toml, with hashes, for Python 3.11 and 3.12 on Linux and macOS.
# Pins that still fit are kept; UPGRADE=1 moves each to the newest version that its constraints allow.
# $UV names the uv to use (the Makefile sets it).
set -euo pipefail
cd "$(dirname "$0")/.."

uv=${UV:-uv}
upgrade=()
if [[ -n ${UPGRADE:-} ]]; then upgrade=(--upgrade); fi

lock() { # lock OUTPUT [uv pip compile arguments...]
  local output=$1
  shift
  printf '%s\n' "$output"
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
    "${upgrade[@]+"${upgrade[@]}"}" --output-file "$output" "$@" >/dev/null
}

# The constraints of one Airflow version, as MWAA has them, less the pins that our overrides replace.
# uv's own --override does not help here: a constraint holds for an overridden requirement too.
constraints() { # constraints VERSION
  local names
  names=$(sed -nE 's/^([A-Za-z0-9._-]+).*/\1/p' "locks/overrides-$1.txt" | sort -u | paste -sd'|' -)
  grep -viE "^(${names:-no override})==" "include/mwaa/constraints-$1.txt"
  cat "locks/overrides-$1.txt"
  printf 'apache-airflow==%s\n' "$1"
}

mkdir -p .build
for version in 3.3.1 3.2.1; do
  constraints "$version" >".build/constraints-$version.txt"
  lock "locks/airflow-$version.txt" pyproject.toml --extra airflow --extra api --extra worker --group dev \
    --constraint ".build/constraints-$version.txt"
  # Name the committed file in the comments, not the filtered copy of it.
  sed -i.orig "s|-c .build/constraints|-c include/mwaa/constraints|" "locks/airflow-$version.txt"
  rm "locks/airflow-$version.txt.orig"
done
lock locks/worker.txt pyproject.toml --extra worker
lock locks/bench.txt --group bench --constraint locks/worker.txt
