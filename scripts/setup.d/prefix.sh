# shellcheck shell=bash disable=SC2154
# Part of scripts/setup: the private prefix, from packages that fit together.

# The cache remembers in $selection what was taken, so that a second checkout needs neither indices nor downloads: lines
# "llvm MAJOR", "apt PACKAGE", and files below $cache.
selection_usable() {
  local file
  [ -z "$refresh" ] && [ -f "$selection" ] || return 1
  while read -r file; do [ -f "$cache/$file" ] || return 1; done < <(grep '\.deb$' "$selection")
}

# make_prefix: of what the cache remembers, or else of what is found now.
make_prefix() {
  if ! selection_usable || ! try "$selection"; then
    select_packages
    mv "$selection.new" "$selection"
  fi
  grep -q librccl-dev "$selection" || say "without hipBLASLt's and RCCL's headers some benchmarks are left out"
  rm -rf "$prefix"
  mv "$tree" "$prefix"
}

# try SELECTION: installs and unpacks it; true when what is built here compiles with it.
try() {
  local llvm
  llvm=$(awk '/^llvm/ {print $2}' "$1")
  # shellcheck disable=SC2046,SC2086
  install_packages $tools $amd_tools $(llvm_packages "$llvm") $(awk '/^apt/ {print $2}' "$1")
  unpack "$1"
  hip_lang
  compiles
}

select_packages() {
  local suite hip='' version='' llvm libs
  find_mirror
  for suite in $suites; do
    # shellcheck disable=SC2086
    if open_suite "$suite" && all_in "$suite" $rocm_packages; then
      version=$(version_in "$suite" libamdhip64-dev)
      if [ "$(major "$version")" -ge $least_hip ]; then hip=$suite; break; fi
    fi
  done
  if [ -n "$hip" ]; then
    for llvm in $(llvms_here); do
      libs=
      newest_device_libs "$llvm" || continue
      say "try HIP of $hip and ${libs#* } of ${libs% *} with clang-$llvm"
      echo "llvm $llvm" >"$selection.new"
      # shellcheck disable=SC2086
      fetch $libs
      # shellcheck disable=SC2086
      fetch "$hip" $rocm_packages
      # shellcheck disable=SC2086
      if all_in "$hip" $baseline_packages; then fetch "$hip" $baseline_packages; fi
      select_catch2
      if try "$selection.new"; then return; fi
      wanted=()
    done
  fi
  mapfile -t looked < <(looked_into)
  die "no clang and ROCm packages found that work together" \
    "Looked for HIP $least_hip or newer ($rocm_packages) and rocm-device-libs-N in these suites of the mirror that apt uses, $site:" \
    "${looked[@]}" \
    "and in this system's own suites for LLVM N or newer (clang-N and llvm-N-dev, with N one of: $llvm_majors; found: $(llvms_here))." \
    "Install AMD's ROCm in $rocm (or say where with ROCM_PATH), or let apt use a mirror that carries these packages." \
    "For NVIDIA GPUs alone nothing of this is needed: scripts/setup nvidia"
}

# newest_device_libs LLVM: sets libs to "SUITE PACKAGE", the newest that this LLVM can read.
newest_device_libs() {
  local n suite
  for n in $device_libs_majors; do
    [ "$n" -le "$1" ] || continue
    for suite in $suites; do
      if open_suite "$suite" && all_in "$suite" "rocm-device-libs-$n"; then libs="$suite rocm-device-libs-$n"; return; fi
    done
  done
  return 1
}

# Catch2 3 is younger than Debian 12: from there it comes out of backports.
select_catch2() {
  local v suite package
  v=$(candidate catch2)
  if [ -n "$v" ] && [ "$(major "$v")" -ge $least_catch2 ]; then
    echo "apt catch2" >>"$selection.new"
    return
  fi
  find_mirror
  for suite in "${VERSION_CODENAME-}-backports" $suites; do
    open_suite "$suite" || continue
    for package in libcatch2-dev catch2; do
      v=$(version_in "$suite" $package)
      if [ -n "$v" ] && [ "$(major "$v")" -ge $least_catch2 ]; then fetch "$suite" $package; return; fi
    done
  done
  mapfile -t looked < <(looked_into)
  die "Catch2 $least_catch2 is not found" "Looked in this system's suites, and in these of the mirror $site:" "${looked[@]}"
}

# Catch2 where no HIP is unpacked: this system's, else one alone in the prefix, where cmake/gpu.cmake looks for it.
catch2_alone() {
  local selection=$cache/selection-catch2-$ID-${VERSION_ID-rolling} file
  if ! selection_usable; then
    [ -n "$(candidate catch2)" ] || refresh_indices
    : >"$selection.new"
    select_catch2
    mv "$selection.new" "$selection"
  fi
  # shellcheck disable=SC2046
  install_packages $(awk '/^apt/ {print $2}' "$selection")
  file=$(grep '\.deb$' "$selection") || return 0
  say "unpack ${file##*/}"
  rm -rf "$prefix/catch2" "$prefix/catch2.new"
  dpkg-deb -x "$cache/$file" "$prefix/catch2.new"
  mv "$prefix/catch2.new/usr" "$prefix/catch2"
  rm -rf "$prefix/catch2.new"
}

hip_suite() { sed -n 's:^debs/\(.*\)/libamdhip64-dev_.*:\1:p' "$selection"; }
selected_version() { [ ! -f "$selection" ] || sed -n "s:^debs/.*/$1_\\([^_]*\\)_.*:\\1:p" "$selection"; }

# The libraries that the benchmarks compare with, of the version of the headers, in the cache, with a link to them in
# the prefix. What they need besides is not here: programs link with them, and do not run.
vendor_libraries() {
  local suite version dir p l
  version=$(selected_version librccl-dev)
  [ -n "$version" ] || return 1
  dir=$cache/vendor/$version
  if [ ! -d "$dir" ]; then
    suite=$(hip_suite)
    find_mirror
    # shellcheck disable=SC2086
    open_suite "$suite" && all_in "$suite" $vendor_packages && [ "$(version_in "$suite" librccl1)" = "$version" ] || return 1
    rm -rf "$cache/vendor"
    for p in $vendor_packages; do from_package "$suite" "$p" "$dir.new" 4 './usr/lib/*/lib*.so.*' || return; done
    for l in "$dir.new"/lib*.so.?; do ln -s "${l##*/}" "${l%.so.*}.so"; done
    mkdir "$dir.new/hip"  # apart: programs find the stand-in
    mv "$dir.new"/libamdhip64.* "$dir.new/hip"
    mv "$dir.new" "$dir"
  fi
  ln -sfn "$dir" "$prefix/vendor"
}

# The headers of the newest HIP that is older by a major version, likewise.
older_hip() {
  local suite version newest dir
  newest=$(major "$(selected_version libamdhip64-dev)")
  [ -n "$newest" ] || return 1
  dir=$cache/older-hip/below-$newest
  if [ ! -d "$dir" ]; then
    find_mirror
    for suite in $suites none; do
      open_suite "$suite" || continue
      version=$(version_in "$suite" libamdhip64-dev)
      [ -z "$version" ] || [ "$(major "$version")" -ge "$newest" ] || break
    done
    [ "$suite" != none ] || return 1
    rm -rf "$cache/older-hip"
    from_package "$suite" libamdhip64-dev "$dir.new" 2 './usr/include/hip/*' ./usr/share/hip/version || return
    mv "$dir.new" "$dir"
  fi
  ln -sfn "$dir" "$prefix/older-hip"
}

tree=$prefix.new
unpack() {  # SELECTION
  local file to
  rm -rf "$tree"
  mkdir -p "$tree"
  while read -r file; do
    say "unpack ${file##*/}"
    case $file in
      *catch2*) to=$tree/x2 ;;  # apart: CUDA programs use it without a HIP header in sight
      *) to=$tree/x1 ;;
    esac
    dpkg-deb -x "$cache/$file" "$to" || die "cannot unpack $cache/$file" "Is the disk full? Or is the file broken: then remove it."
  done < <(grep '\.deb$' "$1")
  mv "$tree/x1/usr/"* "$tree/"
  [ ! -d "$tree/x2" ] || mv "$tree/x2/usr" "$tree/catch2"
  # Links to libraries that are not there, and what makes CMake look for these.
  rm -rf "$tree/x1" "$tree/x2" "$tree/share/doc" "$tree"/lib/x86_64-linux-gnu/cmake/{hip,origami,rccl}* \
    "$tree"/lib/x86_64-linux-gnu/lib{amdhip64,hipblaslt,rccl}*
  ln -s "$(cd "$tree" && echo lib/llvm-*/lib/clang/*/amdgcn)" "$tree/amdgcn"
  ln -s "/usr/lib/llvm-$(awk '/^llvm/ {print $2}' "$1")" "$tree/llvm"
}

# True when a small program compiles and links, the flags of which are left for cmake/toolchain-sim.cmake, and the demo
# compiles, and so do the sources of the simulator that LLVM's and HIP's versions matter to.
compiles() {
  local flags clang=$tree/llvm/bin/clang++ log=$cache/trial.log work=$tree/trial
  local hip=("$clang" -x hip "--rocm-path=$tree" --offload-arch=gfx942 -std=c++20)
  mkdir "$work"
  cat >"$work/a.hip" <<'EOF'
#include <hip/hip_runtime.h>
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <rocprim/block/block_reduce.hpp>
__global__ void f(float* p) { p[threadIdx.x] = __expf(__shfl_xor(p[threadIdx.x], 1)); }
int main() { f<<<1, 64>>>(nullptr); }
EOF
  say "try whether it compiles"
  for flags in "${hip_flags[@]}"; do
    # shellcheck disable=SC2086
    if "${hip[@]}" $flags "$work/a.hip" --hip-link --rtlib=compiler-rt -unwindlib=libgcc "-L$tree/lib" -o "$work/a" >"$log" 2>&1; then
      echo "$flags" >"$tree/hip-flags"
      # shellcheck disable=SC2086
      if "${hip[@]}" $flags -fsyntax-only "-I$root/include" "-I$root/sim" "$root/examples/demo.cpp" >"$log" 2>&1 &&
        "$clang" -fsyntax-only -std=c++20 -D__HIP_PLATFORM_AMD__ "-I$root/sim" -isystem "$tree/include" -isystem "$tree/llvm/include" \
          "$root"/sim/isa/{disassembler,program}.cpp "$root"/sim/hip/{device,runtime}.cpp >"$log" 2>&1; then
        rm -r "$work"
        return
      fi
    fi
  done
  say "it does not: $(grep -m1 -E 'error|No space' "$log" || tail -n 1 "$log") ($log)"
  return 1
}

# Without a GPU nothing needs AMD's real runtime: programs link with a stand-in of the same name and run under
# fusewire-sim, or on a machine with the real one. Run alone, the stand-in says so at the first call, but not where a
# program registers its kernels, so that every program can print its usage.
hip_lang() {
  mkdir -p "$tree/lib/cmake/hip-lang"
  cp "$root/cmake/hip-lang-config.cmake" "$tree/lib/cmake/hip-lang/"
  {
    grep -rhoE '\b_{0,2}hip[A-Z][A-Za-z0-9_]+ *\(' "$tree/include/hip" | tr -d ' (' | grep -v '^__hip.*Register'
    printf '__hip%s\n' PushCallConfiguration PopCallConfiguration
  } | sort -u | awk '
    { print "extern \"C\" __attribute__((alias(\"no_runtime\"))) void " $1 "();" }
    BEGIN {
      print "#include <cstdio>\n#include <cstdlib>"
      print "extern \"C\" void no_runtime() {"
      print "  std::fputs(\"no HIP runtime: run this program under fusewire-sim, or with ROCm'\''s library folder in LD_LIBRARY_PATH\\n\", stderr);"
      print "  std::_Exit(127);\n}"
      print "extern \"C\" void* registered() { return nullptr; }"
      split("RegisterFatBinary UnregisterFatBinary RegisterFunction RegisterVar RegisterManagedVar RegisterSurface RegisterTexture", names)
      for (i in names) print "extern \"C\" __attribute__((alias(\"registered\"))) void* __hip" names[i] "();"
    }' >"$tree/stand-in.cpp"
  quietly "$cache/stand-in.log" "$tree/llvm/bin/clang++" -shared -fPIC -O1 -w -Wl,-soname,libamdhip64.so.7 -o "$tree/lib/libamdhip64.so.7" "$tree/stand-in.cpp"
  ln -sf libamdhip64.so.7 "$tree/lib/libamdhip64.so"
  rm "$tree/stand-in.cpp"
}
