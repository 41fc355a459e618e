#!/usr/bin/env bash
# Formats all sources by .clang-format; with --check only lists the files that differ.
# Exit codes: 0 fine, 1 files differ, 2 usage, 77 no clang-format here (the test is skipped).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
case ${1-} in
  "" | --check) ;;
  --help | -h) sed -n '2,3s/^# //p' "$0" && exit 0 ;;
  *) echo "format.sh: unknown option '$1'; --check or nothing" >&2 && exit 2 ;;
esac
command -v clang-format >/dev/null || { echo "SKIP: clang-format is not installed" && exit 77; }
mapfile -d '' sources < <(find patterns kernels transports bench tests -type f \
  \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z)
if [[ ${1-} != --check ]]; then
  clang-format -i "${sources[@]}"
  exit
fi
if ! report=$(clang-format --dry-run --Werror "${sources[@]}" 2>&1); then
  sed -n 's/^\([^:]*\):.*code should be clang-formatted.*/\1/p' <<<"$report" | sort | uniq -c
  echo "format.sh: these files differ (count of places); scripts/format.sh formats them" >&2
  exit 1
fi
