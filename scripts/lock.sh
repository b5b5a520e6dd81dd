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
  # Name the committed file of constraints in the comments, not the filtered copy of it.
  sed -i.orig 's|-c .build/constraints|-c include/mwaa/constraints|' "$output"
  rm "$output.orig"
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
done
# What requirements.txt adds to an MWAA image, for one that reaches no package index: of all that is needed,
# what the image does not have.
for version in 3.3.1 3.2.1; do
  { cat include/mwaa/preinstalled.txt && printf 'apache-airflow==%s\n' "$version"; } >.build/preinstalled.txt
  grep -v '^--constraint' requirements.txt >.build/requirements.txt
  mwaa=(--python-version 3.12 --python-platform x86_64-manylinux_2_28
    --constraint "include/mwaa/constraints-$version.txt" .build/preinstalled.txt)
  left_out=$("$uv" pip compile --quiet --no-header --no-annotate "${mwaa[@]}" |
    sed -nE 's/^([A-Za-z0-9._-]+)==.*/--no-emit-package=\1/p')
  output=locks/mwaa-$version.txt
  printf '%s\n' "$output"
  # shellcheck disable=SC2086 # one word per package
  "$uv" pip compile --quiet --generate-hashes --no-annotate --no-emit-index-url \
    --custom-compile-command 'make lock' "${upgrade[@]+"${upgrade[@]}"}" --output-file "$output" \
    "${mwaa[@]}" .build/requirements.txt $left_out >/dev/null
done
lock locks/compose.txt pyproject.toml --extra airflow --extra api --extra worker --group compose \
  --constraint .build/constraints-3.3.1.txt
lock locks/worker.txt pyproject.toml --extra worker
lock locks/bench.txt --group bench --constraint locks/worker.txt
lock locks/aws-cli.txt --group aws-cli
lock locks/checkov.txt --group checkov
lock locks/node.txt --group node
