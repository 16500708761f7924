# shellcheck shell=bash disable=SC2034
# Shared by the scripts in this folder: where things are, and how to speak.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
prefix=${FUSEWIRE_PREFIX:-$root/.prefix}
cache=${FUSEWIRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fusewire}
jobs=${FUSEWIRE_JOBS:-$(nproc)}
rocm=${ROCM_PATH:-/opt/rocm}
export FUSEWIRE_PREFIX=$prefix

say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }

# die WHAT [WHY AND WHAT TO DO, one line each]
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
  exit 1
}

# help_if_asked "$@": prints the comment at the head of the calling script.
help_if_asked() {
  case "${1-}" in
    -h | --help) awk 'NR > 1 { if (!/^#/ || /^# shellcheck /) exit; sub(/^# ?/, ""); print }' "$0"; exit 0 ;;
  esac
}

installed_rocm() { [ -x "$rocm/llvm/bin/clang++" ] && [ -f "$rocm/lib/cmake/hip-lang/hip-lang-config.cmake" ]; }

# The number of AMD GPUs that this user can open.
amd_gpus() {
  local n=0 node
  if [ -r /dev/kfd ] && [ -w /dev/kfd ]; then
    for node in /sys/class/kfd/kfd/topology/nodes/*/properties; do
      if grep -qE '^simd_count [1-9]' "$node" 2>/dev/null; then n=$((n + 1)); fi
    done
  fi
  echo "$n"
}

# quietly LOG COMMAND...: the output goes to LOG; on failure its end is shown.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if ! "$@" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    die "failed: $*" "the complete output is in $log"
  fi
}

# setup_for PRESET: all of scripts/setup, or what a preset for NVIDIA needs.
setup_for() {
  case $1 in
    nvidia*) "$root/scripts/setup" nvidia ;;
    *) "$root/scripts/setup" ;;
  esac
}

# configure PRESET [-Dname=value...]
configure() {
  local preset=$1
  shift
  (cd "$root" && quietly "$root/build/$preset-configure.log" cmake --preset "$preset" "$@")
}
