# The unit tests once more, in builds that check memory, undefined behaviour and races. They are builds of their own below
# this one, made by the first test of each group, so that nobody waits for them who does not ask: ctest -LE sanitize.
set(sanitize ${CMAKE_CURRENT_LIST_DIR})

# weft_sanitized_build(SANITIZER TARGET...): the test that builds; the others need it.
function(weft_sanitized_build sanitizer)
  add_test(NAME sanitize.${sanitizer}_build
           COMMAND ${sanitize}/build.sh ${sanitizer} ${CMAKE_BINARY_DIR}/${sanitizer}
                   "-DMPI_EXECUTABLE_SUFFIX=${MPI_EXECUTABLE_SUFFIX}" -- ${ARGN})
  set_tests_properties(sanitize.${sanitizer}_build PROPERTIES LABELS sanitize TIMEOUT 1800 RUN_SERIAL TRUE
                       FIXTURES_SETUP build_${sanitizer})
endfunction()

# weft_sanitized(SANITIZER NAME COMMAND...): one run in that build; programs are named as below its bin/.
function(weft_sanitized sanitizer name)
  add_test(NAME sanitize.${sanitizer}_${name}
           COMMAND ${sanitize}/run.sh ${ARGN} WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/${sanitizer}/bin)
  set_tests_properties(sanitize.${sanitizer}_${name} PROPERTIES LABELS sanitize TIMEOUT 600
                       FIXTURES_REQUIRED build_${sanitizer})
endfunction()

weft_sanitized_build(address test-patterns test-kernels test-transports test-bench weft-tp-allgather)
foreach(room patterns kernels bench)
  weft_sanitized(address ${room} ./test-${room})
endforeach()
# More than three ranks on two cores take minutes here, and go the ways that three go.
weft_sanitized(address transports ./test-transports
               --gtest_filter=-*ShmContract*_4:*ShmContract*_5:*ShmContract*_6:*ShmContract*_7:*ShmContract*_8:*ShmContract*_9)
weft_sanitized(address ranks ${MPIEXEC_EXECUTABLE} -n 2 ./weft-tp-allgather --tp 2 --transport mpi,shm --model tiny
               --min-time 0 --max-time 0.02 --csv none)

# Ranks as threads of one process, which share the memory that they otherwise map: the only way to see their races.
weft_sanitized_build(thread test-transports test-kernels test-relaxed-flag)
# Two or three ranks: more of them on two cores take minutes. Not ShmMutation: it leaves waits out, so it does race.
weft_sanitized(thread shm ./test-transports --gtest_filter=ShmNative.*:*ShmContract.*/*_2:*ShmContract.CollectivesF32/*_3:*Bootstrap*)
weft_sanitized(thread streams ./test-kernels --gtest_filter=*Stream*)
weft_sanitized(thread relaxed_flag ./test-relaxed-flag --gtest_filter=ShmNative.EveryFormKeepsTheContract)
set_tests_properties(sanitize.thread_relaxed_flag PROPERTIES PASS_REGULAR_EXPRESSION "WARNING: ThreadSanitizer: data race")
