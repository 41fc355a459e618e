// Native forms: a wire that knows a faster way to do a whole collective than a schedule of puts
// offers it here; the scheduled communicator then runs it in place of a plan.
//
// A wire overrides Transport::native(). It is asked once per operation, in commit(), on every
// member, and must answer alike on all of them: from `sizes`, `dtype` and its own constants only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/schedule.hpp"

namespace weft {

using CommId = std::uint16_t;

/// The default algorithm of a wire that has native forms.
inline constexpr std::string_view kNativeAlgorithm = "native";

/// A member of the group, by group index. Places are offsets in that rank's arena; -1: no buffer.
struct NativeMember {
  Rank rank = 0;
  Bytes in = -1, out = -1;
  Network network = Network::scale_up;
};

/// One operation of one group, matched over its members.
struct NativeInput {
  CommId comm = 0;
  int me = 0;  // group index of this rank
  Dimension dim = Dimension::none;
  DType dtype = DType::f32;
  std::vector<NativeMember> members;
  ScheduleInput sizes;                   // counts known only at run time: no matrix
  const Operation* operation = nullptr;  // lives as long as the communicator
  std::string what;                      // "all_gather 'gather Y' of the tp group {0,1}"
  FlowRecorder* recorder = nullptr;      // the form records each message where it moves the bytes
};

class NativeOperation {
 public:
  virtual ~NativeOperation() = default;
  /// As Communicator::run(): ends when this rank's output is complete and its input may be
  /// overwritten. Allocates nothing, looks nothing up.
  virtual void run() = 0;
  /// As Communicator::touch().
  virtual void touch() const {}
};

}  // namespace weft
