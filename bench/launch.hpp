// What a rank knows of its launcher, and how it leaves when the others cannot be told.
#pragma once

#include <string>

#include "patterns/error.hpp"
#include "patterns/types.hpp"

namespace weft {

/// Prints a line, and waits until the launcher has read it: hydra was seen to end the ranks first
/// and to throw away what their pipes still held.
void say_last(const std::string& line);

/// Ends this process at once with `code`, after printing `line`, where the other ranks cannot be
/// told why (of a peer that does not answer, before MPI_Init). Lower ranks print first; hydra ends
/// the others when the first has left, so one line is seen.
[[noreturn]] void leave_alone(Rank rank, ExitCode code, const std::string& line);

/// What the launcher's environment promises, and by which variable: 0 if nothing.
struct Promise {
  int ranks = 0;
  std::string variable;
};
Promise promised_ranks();
/// This process's rank by the launcher's environment, before MPI is initialised; 0 if it says
/// nothing.
Rank launcher_rank();

/// Ends this process with exit code 2 where MPI could not start for want of open files: it would
/// abort without saying why. Call before MPI is initialised.
void check_open_files();

/// Throws Error(usage) if MPI found fewer ranks than the launcher promised or the layout needs,
/// naming the cure.
void check_launch(int found, int needed);

}  // namespace weft
