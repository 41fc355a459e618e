#!/usr/bin/env bash
# shellcheck disable=SC1091,SC2034,SC2154  # names come from the sourced files
# All checks: installs, builds, runs ctest. Options are ctest's: scripts/test.sh -L unit
# Exit codes: 0 all passed (or skipped with a reason), 1 a test failed, 2 the environment or the build.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/setup.sh"
source "$here/suite.sh"

if [[ ${1-} == --help || ${1-} == -h ]]; then
  sed -n '3,4s/^# //p' "$0"
  say "Labels: unit (seconds, two at a time), mpi, slurm, slow, rdma, sanitize. --no-install as first option: never call apt."
  exit 0
fi
if [[ ${1-} == --no-install ]]; then
  shift
else
  install_packages "${weft_packages[@]}" "${weft_test_packages[@]}" || exit 2
fi
say "Building into $weft_build"
build_targets all -DWEFT_TESTS=ON || exit 2

scrub_launcher_environment
rm -f "$weft_build/tests.xml"
# Tests that launch ranks are RUN_SERIAL; -j2 lets the unit tests share the cores.
ctest --test-dir "$weft_build" -j2 --output-on-failure --no-tests=error \
  --output-junit "$weft_build/tests.xml" "$@" </dev/null
code=$?
if [[ ! -f $weft_build/tests.xml ]]; then
  complain "ctest ran nothing (exit code $code); see its message above"
  exit 2
fi
python3 "$here/count_tests.py" "$weft_build/tests.xml"
((code == 0)) || exit 1
