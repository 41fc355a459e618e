// Writes the status file's last word for a rank 0 that died before it could.
#pragma once

#include <sys/types.h>

#include "bench/progress_board.hpp"
#include "bench/row_writer.hpp"
#include "transports/shm_segment.hpp"

namespace weft {

/// A launcher kills all ranks when one has died, by a signal that nobody can handle: rank 0 is gone
/// before it knows why. So it has a child, in a session of its own, that waits for its end. It
/// notes which rank of the host died first, writes the status unless somebody has, and leaves.
///
/// Wrong: to have one while rank 0 is still to do what fork() forbids (it only maps memory and
/// opens files before).
class StatusKeeper {
 public:
  /// Forks. Without a keeper, where that fails, the file stays at "running" after such a death.
  StatusKeeper(const ProgressBoard& board, const StatusFile& status);
  /// Rank 0 ends in good order: the keeper leaves without a word.
  ~StatusKeeper();
  StatusKeeper(const StatusKeeper&) = delete;
  StatusKeeper& operator=(const StatusKeeper&) = delete;

 private:
  pid_t child_ = -1;
  Descriptor alive_;  // the child sees it close, however this process ends
};

}  // namespace weft
