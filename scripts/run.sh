#!/usr/bin/env bash
# shellcheck disable=SC1091,SC2034,SC2154  # names come from the sourced files
# From a fresh Debian 12 to numbers: installs, builds, runs the five programs, says where the results are.
set -uo pipefail
trap '' PIPE
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/setup.sh"
source "$here/suite.sh"

ranks=2 install=1 build_only=0

help() {
  cat <<TXT
Usage: scripts/run.sh [OPTION...] [-- OPTIONS OF THE PROGRAMS]
Installs missing packages by apt (needs root or sudo), builds into build/, runs weft's programs on this machine.

  --ranks N          ranks of each program (default 2)
  --build-only       stop when the programs are built
  --no-install       never call apt
  --help             this text
$(suite_help)
TXT
}

while (($#)); do
  if [[ $1 == --?*=* ]]; then
    set -- "${1%%=*}" "${1#*=}" "${@:2}"
  fi
  case $1 in
    --help | -h) help && exit 0 ;;
    --ranks) ranks=${2-} && shift ;;
    --build-only) build_only=1 ;;
    --no-install) install=0 ;;
    --) suite_passed_on=("${@:2}") && break ;;
    *)
      suite_option "$1" "${2-}" || exit 2
      if ((suite_taken == 0)); then
        complain "unknown option '$1'; --help lists the options, and what stands after -- goes to the programs"
        exit 2
      fi
      shift $((suite_taken - 1))
      ;;
  esac
  (($#)) && shift
done
if [[ ! $ranks =~ ^[1-9][0-9]{0,3}$ ]]; then
  complain "--ranks '$ranks' is not a number of ranks (1 to 9999)"
  exit 2
fi

if ! mkdir -p "$suite_results" 2>/dev/null; then
  complain "cannot make $suite_results; choose a folder that can be written with --results"
  exit 2
fi
if ((install)); then
  install_packages "${weft_packages[@]}" || exit 2
fi
mpiexec=$(find_mpiexec) || exit 2
say "Building into $weft_build"
tests=OFF
[[ -e /usr/include/gtest/gtest.h ]] && tests=ON
build_targets programs "-DWEFT_TESTS=$tests" || exit 2
((build_only)) && exit 0

scrub_launcher_environment
launch=$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
folder=$(suite_folder "$(date -u +%Y%m%dT%H%M%SZ)-$launch") || exit 2
cores=$(nproc)
((ranks > cores)) && say "Note: $ranks ranks share $cores cores; times say little then."
say "Results: $folder"
suite_run "$folder" "$mpiexec" -n "$ranks"
