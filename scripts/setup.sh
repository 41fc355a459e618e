# shellcheck shell=bash disable=SC2034,SC2154  # names cross the sourced files
# Sourced by run.sh, test.sh and weft.sbatch: what must be installed, and how the build folder is made.
# Each function returns 0, or prints one line with cause and remedy and returns 2.

weft_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
weft_build=${WEFT_BUILD:-$weft_root/build}
weft_bin=$weft_build/bin
weft_patterns=(tp-allgather row-allreduce pp-sendrecv dp-gradsync moe-alltoall)

weft_packages=(g++ cmake ninja-build pkg-config mpich libmpich-dev libopenblas-dev libhwloc-dev
  libfmt-dev nlohmann-json3-dev libcli11-dev libbenchmark-dev libibverbs-dev python3)
weft_test_packages=(libgtest-dev python3-pytest python3-numpy slurm-wlm munge locales iproute2
  procps tzdata clang-format qemu-system-x86 busybox-static cpio kmod ibverbs-providers ibverbs-utils
  perftest)

# A reader that closes our output (| head) must not stop the run, so a failed write is no error here.
say() { { printf '%s\n' "$*"; } 2>/dev/null || true; }
complain() { { printf '%s: %s\n' "${0##*/}" "$*" >&3; } 3>&2 2>/dev/null || true; }

# missing_packages NAME...: prints those that are not installed.
missing_packages() {
  local installed name
  installed=" $(dpkg-query -W -f '${Package}=${db:Status-Status} ' "$@" 2>/dev/null)"
  for name; do
    [[ $installed == *" $name=installed "* ]] || printf '%s ' "$name"
  done
}

# install_packages NAME...: asks apt for what is missing; silent, and without network, where nothing is.
install_packages() {
  local missing as_root=()
  if ! command -v dpkg-query >/dev/null; then
    say "No dpkg here: taking for granted that the equivalents of these are installed: $*"
    return 0
  fi
  read -r -a missing <<<"$(missing_packages "$@")"
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      complain "packages are missing and this user may not install them; as root: apt-get install ${missing[*]}"
      return 2
    fi
    as_root=(sudo -n)
  fi
  say "Installing by apt: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600)
  "${apt[@]}" update </dev/null >/dev/null 2>&1 || say "apt-get update failed; trying with the lists that are here"
  if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >"$apt_log" 2>&1; then
    tail -n 15 "$apt_log" >&2
    complain "apt-get could not install ${missing[*]}; is there a network? (whole output: $apt_log)"
    return 2
  fi
}
apt_log=${TMPDIR:-/tmp}/weft-apt-$UID-$$.log

# Debian lets several MPIs stand side by side; weft is built and launched with MPICH.
find_mpiexec() {
  local name
  for name in mpiexec.mpich mpiexec.hydra mpiexec; do
    command -v "$name" && return 0
  done
  complain "no mpiexec on the path; install mpich"
  return 2
}

# configure [CMAKE OPTION...]: makes the build folder where there is none for this tree.
configure() {
  local cache=$weft_build/CMakeCache.txt options=(-S "$weft_root" -B "$weft_build" "$@")
  if [[ ! -f $cache ]]; then
    options+=(-G Ninja -DCMAKE_BUILD_TYPE=Release)
    [[ -x $(command -v mpicc.mpich) ]] && options+=(-DMPI_EXECUTABLE_SUFFIX=.mpich)
  elif ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$weft_root" "$cache"; then
    options=(--fresh "${options[@]}" -G Ninja -DCMAKE_BUILD_TYPE=Release)  # the folder was moved or copied
  fi
  cmake "${options[@]}" >"$weft_build/configure.log" 2>&1 </dev/null && return 0
  tail -n 20 "$weft_build/configure.log" >&2
  complain "cmake could not configure $weft_build (whole output: $weft_build/configure.log)"
  return 2
}

# build_targets programs|all [CMAKE OPTION...]: two starts at once build one after the other.
build_targets() {
  local what=$1 targets=(weft-pairs) pattern
  shift
  if [[ $what == programs ]]; then
    for pattern in "${weft_patterns[@]}"; do targets+=("weft-$pattern"); done
  else
    targets=(all)
  fi
  mkdir -p "$weft_build" || return 2
  (
    flock 9
    if [[ $what == all || ! -f $weft_build/CMakeCache.txt ]] ||
      ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$weft_root" "$weft_build/CMakeCache.txt"; then
      configure "$@" || exit 2
    fi
    if ! cmake --build "$weft_build" --parallel "$(nproc)" --target "${targets[@]}" \
      >"$weft_build/build.log" 2>&1 </dev/null 9>&-; then
      grep -A 12 -m 3 -E 'error|FAILED' "$weft_build/build.log" >&2 || tail -n 20 "$weft_build/build.log" >&2
      complain "the build failed (whole output: $weft_build/build.log)"
      exit 2
    fi
  ) 9>"$weft_build/.lock"
}
