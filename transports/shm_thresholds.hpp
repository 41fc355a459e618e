// Which form an operation of the shm wire takes, by size: all measured numbers in one place.
#pragma once

#include "patterns/types.hpp"

namespace weft {

struct ShmThresholds {
  /// Up to here a member's bytes travel beside its flag: two copies, but one rendezvous.
  Bytes exchange_beside_flag;
  /// The same for sums: everyone adds up everything.
  Bytes sum_beside_flag;
  /// AllReduce: up to here every rank sums all of it for itself; above, its share for everyone.
  Bytes sum_whole;
  /// Streaming stores: when the buffers of all prepared operations of all ranks together exceed
  /// this many last-level caches. A sum may be larger: no rank touches more than its share.
  double exchange_streaming_caches, sum_streaming_caches;
  /// And when a piece is at least so long.
  Bytes streaming_piece;
  /// Schedules: from here on a put goes past the caches. The data do not fit beside the reader's
  /// own anyway, and plain stores would first read every line they overwrite.
  Bytes streaming_put;
};

// Measured with 2 ranks on 2 cores of a Zen 1 (512 KiB L2 each, 8 MiB L3 together), forms in turns
// in one run, medians of the slowest rank, us:
//   AllGather, hot: beside the flag 0.58 against direct 0.82 at 256 B, 1.68 against 0.96 at 1 KiB;
//   AllReduce, hot: beside the flag 0.60 against 0.93 at 256 B, 1.05 against 0.98 at 1 KiB;
//                   whole 2.16 against shares 2.43 at 16 KiB, 3.05 against 3.03 at 32 KiB;
//   plain against streaming stores, rotated: AllGather 1.35 / 1.19 at 1 KiB, 28.5 / 19.4 at 64 KiB,
//     525 / 382 at 1 MiB; AllReduce 1.30 / 1.11 at 1 KiB, 234 / 164 at 1 MiB;
//   the same, hot, by the size of all buffers: AllGather 88 / 162 at 6 MiB, 368 / 260 at 9 MiB;
//     AllReduce 93 / 151 at 8 MiB, 227 / 265 at 12 MiB, 737 / 393 at 16 MiB.
// Cross-memory attach (process_vm_readv of a buffer that the peer has just written) is no form
// here: it takes 3.6 times as long as the copy from the mapping at 4 KiB, 2.6 at 64 KiB, 2.4 at 1
// MiB, 1.7 at 16 MiB, since the kernel looks up every page. Nor do huge pages from hugetlbfs: they
// are the administrator's to give, and where the kernel gives transparent ones to shared memory the
// arena asks for them.
inline constexpr ShmThresholds kShmThresholds{
    .exchange_beside_flag = 512,
    .sum_beside_flag = 512,
    .sum_whole = 16 << 10,
    .exchange_streaming_caches = 1.0,
    .sum_streaming_caches = 1.6,
    .streaming_piece = 512,
    .streaming_put = 4 << 20,
};

}  // namespace weft
