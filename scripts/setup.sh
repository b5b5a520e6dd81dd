#!/usr/bin/env bash
# Makes a machine ready for `make`, from nothing but Python >= 3.11. Safe to repeat: what is there is kept.
#
#   scripts/setup.sh tools                      Tesseract with English and orientation data, poppler, and Redis
#   scripts/setup.sh venv DIR LOCK [--project]  a virtual environment with exactly what LOCK holds (and this project)
#   scripts/setup.sh apt COMMAND:PACKAGE...     Debian's package for each command that is missing
#   scripts/setup.sh uv                         print the path of a working uv, installing one in .uv/ if need be
#
# PYTHON=... picks the interpreter; otherwise python3.12, python3.11 or python3, whichever runs and is in range.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

die() { # die WHAT [COMMAND OR DETAIL...]
  say "$1"
  shift
  if (($#)); then printf '%s\n' "$@" >&2; fi
  exit 1
}

# Runs a command quietly; shows what it printed only when it fails.
quietly() {
  local log
  mkdir -p .build
  log=$(mktemp .build/setup.XXXXXX)
  if "$@" >"$log" 2>&1; then
    rm -f "$log"
    return
  fi
  tail -n 30 "$log" >&2
  rm -f "$log"
  return 1
}

# --- outside tools -----------------------------------------------------------

missing_tools() {
  local languages=''
  if command -v tesseract >/dev/null; then
    languages=$(tesseract --list-langs 2>&1 || true)
  else
    echo tesseract-ocr
  fi
  grep -qx eng <<<"$languages" || echo tesseract-ocr-eng
  grep -qx osd <<<"$languages" || echo tesseract-ocr-osd
  command -v pdftoppm >/dev/null || echo poppler-utils
  command -v redis-server >/dev/null || echo redis-server
}

apt_install() { # apt_install PACKAGE...
  local install=(apt-get install -y --no-install-recommends "$@") as_root=(env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1)
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null || die 'not allowed to install packages here. Run this, then make again:' \
      "  sudo apt-get update && sudo ${install[*]}"
    as_root=(sudo -n "${as_root[@]}")
  fi
  # RUNLEVEL: a service that is installed must not start by itself.
  say "installing $* (apt)"
  # A fresh machine has no package lists, an old one stale lists: fetch new ones only if these do not do.
  quietly "${as_root[@]}" "${install[@]}" 2>/dev/null ||
    { quietly "${as_root[@]}" apt-get update && quietly "${as_root[@]}" "${install[@]}"; } ||
    die 'apt could not (above is what it said). Run this, then make again:' \
      "  sudo apt-get update && sudo ${install[*]}"
}

install_commands() { # install_commands COMMAND:PACKAGE...
  local pair missing=()
  for pair in "$@"; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
  done
  if ((${#missing[@]} == 0)); then return; fi
  command -v apt-get >/dev/null || die 'apt-get is not here. Missing, by their Debian names:' "  ${missing[*]}"
  apt_install "${missing[@]}"
}

install_tools() {
  local missing
  missing=$(missing_tools)
  if [[ -z $missing ]]; then return; fi

  if command -v apt-get >/dev/null; then
    # shellcheck disable=SC2086 # one word per package
    apt_install $missing
  elif command -v brew >/dev/null; then
    # Homebrew's tesseract brings the English and the orientation data along.
    say 'installing tesseract, poppler and redis (brew)'
    quietly brew install tesseract poppler redis || die 'brew could not. Run this, then make again:' \
      '  brew install tesseract poppler redis'
  else
    die 'neither apt-get nor brew is here. With the package manager of this system, install Tesseract 5' \
      'with the data files eng and osd, poppler (for pdftoppm) and a Redis server (for tests). Missing, by their Debian names:' \
      "  ${missing//$'\n'/ }"
  fi

  missing=$(missing_tools)
  [[ -z $missing ]] || die "still missing after the installation: ${missing//$'\n'/ }"
}

# --- Python ------------------------------------------------------------------

is_supported() { # is_supported PYTHON
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null
}

# Prints the interpreter to use, or "3.12" (which uv then fetches) when there is none in range.
find_python() {
  local candidate
  if [[ -n ${PYTHON:-} ]]; then
    is_supported "$PYTHON" || die "PYTHON=$PYTHON does not run or is not Python 3.11 or 3.12"
    "$PYTHON" -c 'import sys; print(sys.executable)'
    return
  fi
  # By running it: a version manager's shim may be on the path with nothing behind it.
  for candidate in python3.12 python3.11 python3; do
    if is_supported "$candidate"; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  echo 3.12
}

find_uv() {
  local candidate python
  for candidate in "${UV:-}" uv .uv/bin/uv; do
    if [[ -n $candidate ]] && "$candidate" --version >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  python=$(find_python)
  [[ $python != 3.12 ]] || python=python3
  say 'installing uv in .uv/'
  # A virtual environment of its own, as pip may not touch an externally managed Python.
  # Debian's python3 has the module for it in a package of its own.
  quietly "$python" -m venv --clear .uv 2>/dev/null ||
    { command -v apt-get >/dev/null && apt_install python3-venv && quietly "$python" -m venv --clear .uv; } ||
    die "$python cannot create virtual environments. Install its venv module, or uv; then make again."
  quietly .uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.8,<1' || die 'pip could not install uv'
  echo .uv/bin/uv
}

same_version() { # same_version PYTHON PYTHON
  local version='import sys; print(sys.version_info[:2])'
  [[ $("$1" -c "$version" 2>/dev/null) == "$("$2" -c "$version")" ]]
}

create_venv() { # create_venv DIR LOCK [--project]
  local dir=$1 lock=$2 project=${3:-} uv python
  uv=$(find_uv)
  python=$(find_python)
  # An environment that works is kept, unless another Python was asked for.
  if ! is_supported "$dir/bin/python" || { [[ -n ${PYTHON:-} ]] && ! same_version "$dir/bin/python" "$python"; }; then
    say "creating $dir"
    quietly "$uv" venv --clear --no-project --python "$python" "$dir"
  fi
  say "installing $lock into $dir ($("$dir/bin/python" --version))"
  quietly "$uv" pip sync --compile-bytecode --python "$dir/bin/python" --require-hashes "$lock"
  if [[ $project == --project ]]; then
    # The build backend comes from the lock as well, so nothing is installed unchecked.
    quietly "$uv" pip install --python "$dir/bin/python" --no-deps --no-build-isolation --editable .
  fi
}

case ${1:-} in
  tools) install_tools ;;
  venv) create_venv "${@:2}" ;;
  apt) install_commands "${@:2}" ;;
  uv) find_uv ;;
  *) die "usage: scripts/setup.sh tools | venv DIR LOCK [--project] | apt COMMAND:PACKAGE... | uv" ;;
esac
