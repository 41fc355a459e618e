// One test between two ranks: every byte verified, then timed. Only the two take part.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/pair_link.hpp"
#include "bench/row_writer.hpp"
#include "bench/stopping.hpp"
#include "bench/tick_clock.hpp"
#include "bench/watchdog.hpp"

namespace weft {

/// What came of it, as rank `from`, who began, knows it; of `to` only `why` is known.
struct PairResult {
  Rank from = -1, to = -1;  // -1: no test
  std::string why{};        // what is wrong; empty: all that this rank received was right
  Summary summary{};        // us; latency: half round trips. n = 0: not timed
  double first_us = 0;      // the very first iteration, as in `summary`
  std::string stop_reason{};
  Bytes posted = -1;            // payload that `from` posted in an iteration; -1: unknown
  std::int64_t iterations = 0;  // all, untimed ones too
  std::vector<RowWriter::Sample> samples{};  // of `from`; of latency the whole round trip

  std::vector<std::byte> packed(bool with_samples) const;
  static PairResult unpacked(const std::vector<std::byte>& bytes);
};

class PairTrial {
 public:
  /// `watchdog` hears of each iteration; `clock` is anchored anew with each block.
  PairTrial(Bootstrap& bootstrap, Session& session, PairBuffers& buffers, PairLink& link,
            const StoppingRule& rule, TickClock& clock, Watchdog& watchdog);

  /// The two ends of one test: one rank begins, the other answers. How many iterations there are is
  /// decided by who begins, from block to block.
  PairResult begin(PairTest test, Rank peer);
  PairResult answer(PairTest test, Rank peer);

 private:
  std::string verify(PairTest test, Rank peer, bool begins, PairResult& result);
  void iterate(PairTest test, Rank peer, bool begins);
  void close(PairTest test, Rank peer, bool begins);
  /// The next block of who begins: when its first sample began and when each ended, us.
  std::vector<double> run_block(PairTest test, Rank peer, int iterations);
  void time(PairTest test, Rank peer, PairResult& result);
  /// True if both ends say so.
  bool agree(Rank peer, bool mine);

  Bootstrap& bootstrap_;
  Session& session_;
  PairBuffers& buffers_;
  PairLink& link_;
  const StoppingRule& rule_;
  TickClock& clock_;
  Watchdog& watchdog_;
  int turn_ = 0;  // of the sets; the same at both ends
  std::int64_t iterations_ = 0;
  std::vector<std::uint64_t> marks_;  // of the clock, in a block
};

}  // namespace weft
