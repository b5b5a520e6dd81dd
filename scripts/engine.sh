#!/usr/bin/env bash
# Finds a container engine that works here, or makes one, and the base image that ours start from.
#
#   scripts/engine.sh find                print the command of an engine: docker, podman, or one below .build/
#   scripts/engine.sh build ARGUMENT...   build an image with it, as `docker build` does
#   scripts/engine.sh alone COMMAND...    run a command that tests docker-compose.yaml, with ENGINE and COMPOSE set
#   scripts/engine.sh clean               remove all that the engine below .build/ keeps
#
# Where neither docker nor podman runs containers (no daemon, no right to raise limits, no registry in reach), podman
# gets settings that ask for less, storage of its own below .build/containers, and a base image made by debootstrap.
# ENGINE=... picks the engine.
set -euo pipefail
cd "$(dirname "$0")/.."

base=docker.io/library/debian:bookworm-slim
folder=$PWD/.build/containers
own=$folder/podman

say() { printf 'engine: %s\n' "$*" >&2; }

# podman answers `info` also where it cannot run anything: run a program that is not there, and be told so (127).
podman_runs() {
  local empty code=0
  command -v podman >/dev/null || return 1
  empty=$(mktemp -d)
  podman run --rm --network none --rootfs "$empty" /none >/dev/null 2>&1 || code=$?
  rm -rf "$empty"
  ((code == 127))
}

find_engine() {
  if [[ -n ${ENGINE:-} ]]; then
    printf '%s\n' "$ENGINE"
  elif docker info >/dev/null 2>&1; then
    echo docker
  elif [[ ! -x $own ]] && podman_runs; then
    echo podman
  else
    [[ -x $own ]] || make_own
    printf '%s\n' "$own"
  fi
}

overlay_works() {
  local place code=0
  place=$(mktemp -d "$folder/overlay.XXXXXX")
  mkdir "$place"/{lower,upper,work,all}
  mount -t overlay overlay -o "lowerdir=$place/lower,upperdir=$place/upper,workdir=$place/work" "$place/all" \
    2>/dev/null || code=1
  umount "$place/all" 2>/dev/null || true
  rm -rf "$place"
  return "$code"
}

make_own() {
  ((EUID == 0)) || { say 'neither docker nor podman runs containers here, and only root can make up for it'; exit 1; }
  say 'no engine runs containers here; setting up podman below .build/containers'
  scripts/setup.sh apt podman:podman runc:runc debootstrap:debootstrap
  mkdir -p "$folder"
  # A process that may not raise its limits, as root in a sandbox may not, keeps those that it has.
  cat >"$folder/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=$(ulimit -Sn):$(ulimit -Sn)", "nproc=1024:1024"]
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF
  # vfs copies every layer whole, minutes for an image: only where there is nothing better.
  cat >"$folder/storage.conf" <<CONF
[storage]
driver = "$(overlay_works && echo overlay || echo vfs)"
graphroot = "$folder/storage"
runroot = "$folder/run"
CONF
  cat >"$own.new" <<SCRIPT
#!/bin/sh
export CONTAINERS_CONF='$folder/containers.conf' CONTAINERS_STORAGE_CONF='$folder/storage.conf'
exec podman "\$@"
SCRIPT
  chmod +x "$own.new"
  mv "$own.new" "$own"
}

# From Debian's packages where the registry is out of reach; without what the slim image leaves out.
make_base() {
  local root=$folder/base
  "$own" image exists "$base" && return
  if timeout 60 "$own" pull --quiet "$base" >/dev/null 2>&1; then return; fi
  say "making $base with debootstrap"
  rm -rf "$root"
  debootstrap --variant=minbase bookworm "$root" >"$folder/debootstrap.log" 2>&1 ||
    { tail -n 20 "$folder/debootstrap.log" >&2; return 1; }
  printf 'path-exclude %s\n' '/usr/share/doc/*' '/usr/share/man/*' '/usr/share/locale/*' \
    '/usr/share/info/*' >"$root/etc/dpkg/dpkg.cfg.d/slim"
  rm -rf "$root"/usr/share/{doc,man,locale,info}/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
  cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/" 2>/dev/null &&
    rm -f "$root/etc/apt/sources.list"
  tar -C "$root" -c . | "$own" import --quiet --change 'CMD ["bash"]' - "$base" >/dev/null
  rm -rf "$root"
}

# What this machine's pip trusts holds inside a build too, where the network signs TLS anew.
# A Dockerfile stays unaware of it, and so does the image: these are mounts.
build_mounts() {
  local bundle=${PIP_CERT:-${SSL_CERT_FILE:-}}
  if [[ -z $bundle ]]; then return; fi
  printf '[global]\ncert = /run/host-ca.crt\n' >"$folder/pip.conf"
  printf '%s\n' --volume "$bundle:/run/host-ca.crt:ro" --volume "$folder/pip.conf:/etc/pip.conf:ro"
}

build() {
  local engine mounts=()
  engine=$(find_engine)
  if [[ $engine != "$own" ]]; then exec "$engine" build "$@"; fi
  make_base
  readarray -t mounts < <(build_mounts)
  # Format: OCI's knows no HEALTHCHECK. Isolation: a build needs no container of its own.
  exec "$own" build --format docker --isolation chroot --pull=never "${mounts[@]}" "$@"
}

# With Docker, compose runs the services. Otherwise they run one by one, two of them from Debian's packages, in a
# network of their own: there the ports that they ask for are free, whatever else runs here.
alone() {
  ENGINE=$(find_engine)
  COMPOSE='docker compose'
  if ! docker compose version >/dev/null 2>&1; then
    scripts/setup.sh apt docker-compose:docker-compose
    COMPOSE=docker-compose
  fi
  export ENGINE COMPOSE
  if [[ $ENGINE == docker ]]; then exec "$@"; fi
  scripts/setup.sh apt ip:iproute2 pg_ctlcluster:postgresql redis-server:redis-server
  # shellcheck disable=SC2016 # for the inner shell
  exec unshare --net sh -c 'ip link set lo up && exec "$@"' sh "$@"
}

case ${1:-} in
  find) find_engine ;;
  build) build "${@:2}" ;;
  alone) alone "${@:2}" ;;
  clean) if [[ -x $own ]]; then "$own" rm --all --force >/dev/null; rm -rf "$folder"; fi ;;
  *) say 'usage: scripts/engine.sh find | build ARGUMENT... | alone COMMAND... | clean'; exit 2 ;;
esac
