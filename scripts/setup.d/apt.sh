# shellcheck shell=bash disable=SC2154
# Part of scripts/setup: this system's apt, and other suites of the mirror that it uses.

may_install() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

# Why apt failed, in a line: the first error in LOG.
complaint() {
  if grep -qE 'Temporary failure resolving|Could not resolve|Could not connect|Network is unreachable|[Cc]onnection timed out' "$1"; then
    echo "no network: apt does not reach $(grep -oE "https?://[^ /]+" "$1" | head -n 1)"
  else
    grep -m 1 '^E: ' "$1" || tail -n 1 "$1"
  fi
}

indices_fresh=
refresh_indices() {
  [ -z "$indices_fresh" ] && may_install || return 0
  indices_fresh=1
  say "apt-get update"
  as_root apt-get update -o APT::Update::Error-Mode=any >"$cache/apt-update.log" 2>&1 || say "apt-get update: $(complaint "$cache/apt-update.log")"
}
missing_of() {
  [ $# -gt 0 ] || return 0
  comm -23 <(printf '%s\n' "$@" | sort -u) <(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | awk '/^ii/ {print $2}' | sort -u)
}
candidate() { apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ && $2 != "(none)" {print $2; exit}'; }

wanted=()  # all packages that install_packages was asked for
install_packages() {
  local missing log=$cache/apt-install.log
  wanted+=("$@")
  mapfile -t missing < <(missing_of "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  may_install || die "packages are missing, and this is neither root nor a user with sudo" "As root: apt-get install --no-install-recommends ${missing[*]}"
  refresh_indices
  say "install ${missing[*]}"
  logged "$log" as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
    apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install -y --no-install-recommends "${missing[@]}" ||
    die "packages could not be installed" "$(complaint "$log")" "the complete output is in $log"
}

# The LLVMs that are installed, or can be, newest first. Who cannot install takes what is installed, if anything is.
llvms_here() {
  local major p installed='' possible=''
  for major in $llvm_majors; do
    # shellcheck disable=SC2046
    if [ -z "$(missing_of $(llvm_packages "$major"))" ]; then
      installed+=" $major"
      possible+=" $major"
    else
      for p in $(llvm_packages "$major"); do [ -n "$(candidate "$p")" ] || continue 2; done
      possible+=" $major"
    fi
  done
  if may_install || [ -z "$installed" ]; then echo "${possible# }"; else echo "${installed# }"; fi
}

# ------------------------------------------------------------------- other suites of the same mirror, in a private root

# Sets $site: the address of the archive that this system's own release comes from.
find_mirror() {
  [ -z "${site-}" ] || return 0
  refresh_indices
  # shellcheck disable=SC2016
  site=$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' "Origin: $origin" "Label: $origin" 'Component: main' |
    awk -v own="${VERSION_CODENAME-}" 'NR == 1 || $1 == own {site = $2} END {print site}')
  [ -n "$site" ] || die "cannot tell which mirror apt uses" \
    "Looked for a package index with the origin $origin in the output of: apt-get indextargets" \
    "$(if [ -s "$cache/apt-update.log" ]; then complaint "$cache/apt-update.log"; fi)" \
    "Is /etc/apt complete, and was there an apt-get update? Or install yourself what is missing: ROCm in $rocm (or say where with ROCM_PATH), or Catch2 $least_catch2."
}

# in_suite SUITE TOOL...: TOOL of apt, seeing nothing but SUITE.
in_suite() {
  local suite=$1 tool=$2 dir=$cache/apt/$1
  shift 2
  "$tool" -qq -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferences=- \
    -o Dir::Etc::preferencesparts=- -o Dir::State="$dir" -o Dir::State::Lists="$dir/lists" -o Dir::State::status="$dir/status" \
    -o Dir::Cache="$dir/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}
declare -A suite_state=()
open_suite() {  # fetches the index of SUITE; false when the mirror has no such suite, or it cannot be read, which is said
  local suite=$1 dir=$cache/apt/$1
  if [ -z "${suite_state[$suite]-}" ]; then
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    : >"$dir/status"
    echo "deb [arch=amd64 signed-by=/usr/share/keyrings/$keyring] $site $suite $components" >"$dir/sources.list"
    say "look into $suite"
    if in_suite "$suite" apt-get update -o APT::Update::Error-Mode=any >"$dir/update.log" 2>&1; then
      suite_state[$suite]=open
    elif grep -q 'does not have a Release file' "$dir/update.log"; then
      suite_state[$suite]="the mirror does not have it"
    else
      suite_state[$suite]="cannot be read: $(complaint "$dir/update.log")"
      [[ ${suite_state[$suite]} != *'no network'* ]] || die "${suite_state[$suite]#*: }" "What is missing here comes from there, once."
      say "$suite ${suite_state[$suite]}"
    fi
  fi
  [ "${suite_state[$suite]}" = open ]
}
looked_into() {
  local suite
  for suite in "${VERSION_CODENAME-}-backports" $suites; do
    [ -z "${suite_state[$suite]-}" ] || echo "  $suite: ${suite_state[$suite]/#open/read}"
  done
  [[ ${suite_state[*]} != *expired* ]] || echo "  (expired: is this machine's clock right, and the mirror up to date?)"
}
version_in() { in_suite "$1" apt-cache madison "$2" | awk -F' *[|] *' 'NR == 1 {print $2}'; }
all_in() {  # SUITE PACKAGE...
  local suite=$1 p
  shift
  for p in "$@"; do [ -n "$(version_in "$suite" "$p")" ] || return 1; done
}
major() { local v=${1#*:}; echo "${v%%[!0-9]*}"; }

# fetch SUITE PACKAGE...: downloads what is not in the cache yet, and notes the files in $selection.new.
fetch() {
  local suite=$1 p file
  shift
  mkdir -p "$cache/debs/$suite"
  for p in "$@"; do
    file=${p}_$(version_in "$suite" "$p")
    file=${file//:/%3a}
    if ! compgen -G "$cache/debs/$suite/${file}_*.deb" >/dev/null; then
      say "download $p ($suite)"
      (cd "$cache/debs/$suite" && quietly "$cache/download.log" in_suite "$suite" apt-get download "$p")
    fi
    compgen -G "$cache/debs/$suite/${file}_*.deb" | sed "s:^$cache/::" >>"$selection.new"
  done
}

# from_package SUITE PACKAGE DIR LEVELS PATTERN...: unpacks the files that match, without so many folders above them,
# and keeps nothing else.
from_package() {
  local suite=$1 package=$2 dir=$3 levels=$4
  shift 4
  mkdir -p "$dir"
  say "download $package ($suite)"
  (cd "$dir" && quietly "$cache/download.log" in_suite "$suite" apt-get download "$package") || return
  dpkg-deb --fsys-tarfile "$dir/$package"_*.deb | tar -x -C "$dir" --wildcards --strip-components="$levels" "$@" || return
  rm "$dir/$package"_*.deb
}
