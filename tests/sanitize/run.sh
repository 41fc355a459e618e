#!/usr/bin/env bash
# run.sh COMMAND...: with the sanitizers' options, which are the same for all.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# A failed allocation has to come back as it does without a sanitizer: tests ask for too much on purpose.
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=1
export LSAN_OPTIONS=suppressions=$here/leaks.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=suppressions=$here/races.supp:halt_on_error=1:report_mutex_bugs=0
# UCX unlocks a mutex twice as it ends (hence no report of mutexes), and its hooks on mmap do not bear
# ThreadSanitizer's own.
export UCX_MEM_MMAP_HOOK_MODE=none UCX_MEM_EVENTS=no
exec "$@" </dev/null
