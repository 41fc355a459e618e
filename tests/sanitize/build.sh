#!/usr/bin/env bash
# build.sh address|thread FOLDER [CMAKE OPTION...] -- TARGET...: a build with a sanitizer; what failed is shown, in few lines.
set -euo pipefail
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
sanitizer=$1 folder=$2
shift 2
options=()
while [[ $1 != -- ]]; do options+=("$1"); shift; done
shift
mkdir -p "$folder"
if ! cmake -S "$tree" -B "$folder" -G Ninja -DWEFT_TESTS=ON "-DWEFT_SANITIZE=$sanitizer" "${options[@]}" \
  >"$folder/configure.log" 2>&1 </dev/null; then
  tail -n 20 "$folder/configure.log"
  exit 1
fi
if ! cmake --build "$folder" --parallel "$(nproc)" --target "$@" >"$folder/build.log" 2>&1 </dev/null; then
  grep -A 12 -m 3 -E 'error|FAILED' "$folder/build.log" || tail -n 20 "$folder/build.log"
  exit 1
fi
