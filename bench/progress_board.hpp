// What every rank of a host is doing, in memory that all of them see, so that one can tell of
// another that is stopped or dead.
//
//   ProgressBoard board(bootstrap);                      // collective
//   board.mine().beats.fetch_add(1, std::memory_order_relaxed);
//   for (const RankState& rank : board.look()) ...
//
// Wrong: to learn from it how far a rank of another host is; that takes a RollCall.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transports/bootstrap.hpp"
#include "transports/shm_segment.hpp"

namespace weft {

/// One rank's part of the board: written by that rank alone. Lies in zeroed shared memory.
struct ProgressSlot {
  static constexpr std::size_t kTextBytes = 384;
  alignas(64) std::atomic<std::uint64_t> beats;  // progress: the fewer, the farther behind
  alignas(64) std::atomic<double> pulse_us;      // last sign of life of its watchdog's thread
  std::atomic<int> pid;
  std::atomic<std::uint64_t> pid_space, born;  // so that nobody takes another process for this one
  std::atomic<unsigned> text_at;               // which of the two texts holds
  char text[2][kTextBytes];

  /// What the rank is doing. Whoever reads it sees the old text or the new one.
  void set_activity(std::string_view activity);
  std::string activity() const;
};

/// A rank as another rank of its host sees it.
struct RankState {
  /// blocked: its first thread sits in the kernel, where nothing reaches it (a device, a frozen
  /// control group, a file server that is gone).
  enum class Condition : std::uint8_t { alive, silent, stopped, dead, blocked };
  Rank rank = 0;
  Condition condition = Condition::alive;
  std::uint64_t beats = 0;
  std::string activity;  // "measuring CELL, step 'NAME'": as last seen by its watchdog
};

class ProgressBoard {
 public:
  /// Collective. Ranks that cannot share memory with those of their host have a board of their own.
  explicit ProgressBoard(Bootstrap& bootstrap);

  ProgressSlot& mine() { return slot(own_); }
  /// This rank's thread still runs, and what it does. Call it a few times a second.
  void pulse(std::string_view activity);
  /// The ranks of this host that share the board, ascending.
  const std::vector<Rank>& ranks() const { return ranks_; }
  std::vector<RankState> look() const;

  /// True for the first caller of this host: it tells what happened, the others keep silent.
  bool claim_last_word();
  /// The files get their last word: true for the first caller, nobody else may write one.
  bool mark_told() { return header().told.exchange(1) == 0; }
  bool told() const { return header().told.load() != 0; }
  /// Rows on disk, as rank 0 counts them.
  void set_rows(int rows) { header().rows.store(rows); }
  int rows() const { return header().rows.load(); }

  /// Ends ranks of this host that live but do not go on, by SIGKILL; for when the launcher does
  /// not.
  void kill_missing() const;
  /// The ranks' processes in a form that poll() waits for, by index of ranks(); -1: none.
  std::vector<Descriptor> open_processes() const;

 private:
  struct Header {
    std::atomic<int> claimed, told, rows;
  };
  Header& header() const { return *reinterpret_cast<Header*>(memory_->data()); }
  ProgressSlot& slot(std::size_t index) const;
  RankState state_of(std::size_t index) const;
  bool same_process_space(const ProgressSlot& slot) const;

  std::vector<Rank> ranks_;
  std::size_t own_ = 0;  // index in ranks_
  std::unique_ptr<SharedMapping> memory_;
};

}  // namespace weft
