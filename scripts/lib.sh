# shellcheck shell=bash disable=SC2034
# Shared by the scripts in this folder: where things are, how to speak, how to build.
[ -n "${BASH_VERSION-}" ] || { echo "error: these scripts are written for bash: start them as ./scripts/NAME" >&2; exit 1; }
set -euo pipefail
export LC_ALL=C.UTF-8  # the scripts read what apt and CMake print
unset LANGUAGE         # it translates that in every locale but C and POSIX
trap 'exit 130' INT    # also where a command catches the signal and goes on, as apt does

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
prefix=${FUSEWIRE_PREFIX:-$root/.prefix}
builds=${FUSEWIRE_BUILD:-$root/build}
home=~  # also where HOME is not set
cache=${FUSEWIRE_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/fusewire}
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

[[ $jobs =~ ^[1-9][0-9]*$ ]] || die "FUSEWIRE_JOBS is $jobs" "expected a number of jobs, 1 or more"

# help_if_asked "$@": prints the comment at the head of the calling script.
help_if_asked() {
  case "${1-}" in
    -h | --help) awk 'NR > 1 { if (!/^#/ || /^# shellcheck /) exit; sub(/^# ?/, ""); print }' "$0"; exit 0 ;;
  esac
}

installed_rocm() { [ -x "$rocm/llvm/bin/clang++" ] && [ -f "$rocm/lib/cmake/hip-lang/hip-lang-config.cmake" ]; }
nvcc_found() { command -v nvcc >/dev/null || [ -x "${CUDA_HOME-}/bin/nvcc" ] || [ -x /usr/local/cuda/bin/nvcc ]; }

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

# logged LOG COMMAND...: the output goes to LOG; a terminal shows its last line.
logged() {
  local log=$1 line status=0
  shift
  mkdir -p "$(dirname "$log")"
  if [ ! -t 1 ]; then
    "$@" >"$log" 2>&1
  else
    "$@" 2>&1 | tee "$log" | while IFS= read -r line; do printf '\r\033[K        %.100s' "${line//$'\r'/}"; done || status=$?
    printf '\r\033[K'
    return $status
  fi
}

# quietly LOG COMMAND...: likewise; a failure ends the script and shows the end of LOG.
quietly() {
  local log=$1
  if ! logged "$@"; then
    tail -n 60 "$log" >&2
    shift
    die "failed: $*" "the complete output is in $log"
  fi
}

# setup_for PRESET: all of scripts/setup, or what a preset for NVIDIA needs; and what scripts/setup does not install has
# to be there.
setup_for() {
  case $1 in
    nvidia*)
      "$root/scripts/setup" nvidia
      nvcc_found || die "nvcc is not found" "Install the CUDA toolkit, 12.8 or newer, or say with CUDA_HOME where it is." ;;
    amd*)
      installed_rocm || die "there is no ROCm in $rocm" "Install it, or say with ROCM_PATH where it is. The preset sim needs none."
      "$root/scripts/setup" ;;
    *) "$root/scripts/setup" ;;
  esac
}

# open_build PRESET: sets $build, the preset's folder, and keeps other scripts out of it until this one ends. What a
# copied checkout has brought along of the original's build goes.
open_build() {
  local made_for
  build=$builds/$1
  mkdir -p "$build" || die "cannot write $build" "Say with FUSEWIRE_BUILD where builds may go."
  exec 8>"$build.lock"
  flock 8
  made_for=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
  if [ -n "$made_for" ] && ! [ "$made_for" -ef "$root" ]; then
    say "$build was built from $made_for: start again"
    rm -rf "$build"
  fi
}

# configure PRESET [-Dname=value...]: always; $build is then its folder.
configure() {
  local preset=$1
  shift
  open_build "$preset"
  say "configure ($preset)"
  (cd "$root" && quietly "$builds/$preset-configure.log" cmake --preset "$preset" -B "$build" "$@")
}

# build_target PRESET TARGET: sets up, and builds one target; $build is then the preset's folder.
build_target() {
  setup_for "$1"
  open_build "$1"
  [ -f "$build/build.ninja" ] || configure "$1"
  say "build"
  NINJA_STATUS='        [%es] %f of %t: ' cmake --build "$build" -j "$jobs" --target "$2"
}

# check_ctest_options ARGUMENT...: ctest passes over what it does not know, and runs every test.
check_ctest_options() {
  local help argument value=''
  help=$(ctest --help)
  for argument in "$@"; do
    if [ -n "$value" ]; then value=''; continue; fi
    case $argument in
      -j[0-9]*) ;;
      -*)
        grep -qE "(^|[ ,])${argument%%=*}([][ ,=<]|\$)" <<<"$help" || die "ctest has no option $argument" "see ctest --help; -R REGEX chooses tests"
        ! grep -qE "(^|[ ,])$argument +[^ =]" <<<"$help" || value=wanted ;;
      *) die "$argument is no option of ctest" "-R $argument runs the tests whose names it matches" ;;
    esac
  done
  [ -z "$value" ] || die "$argument needs a value"
}
