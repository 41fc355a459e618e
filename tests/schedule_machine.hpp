// A machine of n ranks in memory, which plays the schedules of a collective with data and finds
// what a real wire would only show now and then: every element remembers who wrote and read it, and
// every access must be ordered after the accesses it conflicts with by the schedule itself (vector
// clocks; each put is a thread of its own, which starts at its post and is joined by the receiver's
// wait).
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "transports/schedule.hpp"

namespace weft {

/// A wrong schedule: what() says where.
struct ScheduleFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ScheduleMachine {
 public:
  struct Cell {
    std::int64_t value = 0;
    float real = 0;  // the same operations in floating point, for bitwise comparisons
    bool written = false;
    struct Access {
      int thread = 0, time = 0;
    };
    Access writer;
    std::vector<Access> readers;  // since it was written
  };

  /// `in_sizes`, `out_sizes`: elements of each rank. Inputs are filled by fill(rank, i).
  template <class Fill>
  ScheduleMachine(std::vector<std::unique_ptr<Schedule>> schedules, std::vector<Index> in_sizes,
                  const std::vector<Index>& out_sizes, Fill fill, unsigned seed)
      : schedules_(std::move(schedules)), random_(seed) {
    const std::size_t n = schedules_.size();
    ranks_.resize(n);
    for (std::size_t r = 0; r < n; ++r) {
      ranks_[r].memory[0].resize(static_cast<std::size_t>(in_sizes[r]));
      ranks_[r].memory[1].resize(static_cast<std::size_t>(out_sizes[r]));
      ranks_[r].memory[2].resize(static_cast<std::size_t>(schedules_[r]->scratch_elements()));
      ranks_[r].arrived.resize(n);
      ranks_[r].clock.assign(n, 0);
      for (std::size_t i = 0; i < ranks_[r].memory[0].size(); ++i) {
        Cell& cell = ranks_[r].memory[0][i];
        cell.value = fill(static_cast<int>(r), static_cast<Index>(i));
        cell.real = 1.0f / static_cast<float>(cell.value + 1);
        cell.written = true;
      }
    }
    threads_ = static_cast<int>(n);
  }

  /// Runs ranks in random order, each until it must wait. Throws ScheduleFault.
  void play();
  const std::vector<Cell>& out(int rank) const { return ranks_[index(rank)].memory[1]; }

 private:
  using Clock = std::vector<int>;
  struct Message {
    int round = 0;
    Index elements = 0;
    Clock clock;
  };
  struct RankState {
    std::vector<Cell> memory[3];
    std::vector<std::deque<Message>> arrived;  // by sender
    Clock clock;
    int round = 0;
    bool posted = false;
    Round current;
  };

  static std::size_t index(Index i) { return static_cast<std::size_t>(i); }
  bool done(int r) const { return ranks_[index(r)].round == schedules_[index(r)]->rounds(); }
  bool advance(int r);  // false: it waits
  void post(int r);
  bool receive(int r);
  void check_round(int r) const;
  void local(int r, const LocalStep& step);
  void put(int r, const Transfer& transfer);
  Cell* cells(int rank, Place place, Index n);
  void read(Cell& cell, const Clock& clock, int thread, int rank);
  void write(Cell& cell, const Clock& clock, int thread, int rank);
  [[noreturn]] void fault(int rank, const std::string& what) const {
    throw ScheduleFault("rank " + std::to_string(rank) + " round " +
                        std::to_string(ranks_[index(rank)].round) + ": " + what);
  }
  static bool before(Cell::Access access, const Clock& clock) {
    return access.time == 0 ||
           (index(access.thread) < clock.size() && clock[index(access.thread)] >= access.time);
  }
  static void join(Clock& into, const Clock& other) {
    if (into.size() < other.size()) into.resize(other.size());
    for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
  }

  std::vector<std::unique_ptr<Schedule>> schedules_;
  std::vector<RankState> ranks_;
  std::mt19937 random_;
  int threads_ = 0;
};

inline void ScheduleMachine::play() {
  std::vector<int> running;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
    if (!done(r)) running.push_back(r);
  std::vector<int> waiting;
  while (!running.empty()) {
    const std::size_t pick = random_() % running.size();
    const int r = running[pick];
    const bool moved = advance(r);
    if (moved) {
      running.insert(running.end(), waiting.begin(), waiting.end());
      waiting.clear();
    }
    const auto where = std::find(running.begin(), running.end(), r);
    if (!moved) waiting.push_back(r);
    if (!moved || done(r)) running.erase(where);
  }
  if (!waiting.empty()) fault(waiting.front(), "deadlock: it and others wait for ever");
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    for (const auto& queue : ranks_[r].arrived)
      if (!queue.empty()) fault(static_cast<int>(r), "a message is left that nobody waited for");
}

inline bool ScheduleMachine::advance(int r) {
  RankState& rank = ranks_[index(r)];
  if (!rank.posted) {
    post(r);
    return true;
  }
  if (!receive(r)) return false;
  for (const LocalStep& step : rank.current.after) local(r, step);
  ++rank.round;
  rank.posted = false;
  return true;
}

inline void ScheduleMachine::post(int r) {
  RankState& rank = ranks_[index(r)];
  rank.current = schedules_[index(r)]->round(rank.round);
  check_round(r);
  for (const LocalStep& step : rank.current.before) local(r, step);
  for (const Transfer& transfer : rank.current.sends) put(r, transfer);
  for (const LocalStep& step : rank.current.meanwhile) local(r, step);
  rank.posted = true;
}

inline void ScheduleMachine::check_round(int r) const {
  const Round& round = ranks_[index(r)].current;
  std::vector<bool> seen(ranks_.size());
  for (const Round::Receive& receive : round.receives) {
    if (receive.peer == r || receive.messages <= 0 || receive.elements <= 0)
      fault(r, "an empty receive, or one from itself");
    if (seen[index(receive.peer)]) fault(r, "two receives of one peer in a round");
    seen[index(receive.peer)] = true;
  }
  for (const Transfer& send : round.sends)
    if (send.peer == r || send.elements <= 0) fault(r, "an empty send, or one to itself");
}

inline bool ScheduleMachine::receive(int r) {
  RankState& rank = ranks_[index(r)];
  for (const Round::Receive& receive : rank.current.receives)
    if (rank.arrived[index(receive.peer)].size() < index(receive.messages)) return false;
  for (const Round::Receive& receive : rank.current.receives) {
    Index elements = 0;
    for (int i = 0; i < receive.messages; ++i) {
      auto& queue = rank.arrived[index(receive.peer)];
      const Message& message = queue.front();
      if (message.round > rank.round) fault(r, "a message of a later round of its sender");
      elements += message.elements;
      join(rank.clock, message.clock);
      queue.pop_front();
    }
    if (elements != receive.elements) fault(r, "other elements arrived than the receive says");
  }
  return true;
}

inline ScheduleMachine::Cell* ScheduleMachine::cells(int rank, Place place, Index n) {
  auto& memory = ranks_[index(rank)].memory[static_cast<int>(place.role)];
  if (place.offset < 0 || place.offset + n > static_cast<Index>(memory.size()))
    fault(rank, "an access outside its buffer");
  return memory.data() + place.offset;
}

inline void ScheduleMachine::read(Cell& cell, const Clock& clock, int thread, int rank) {
  if (!cell.written) fault(rank, "reads what nobody wrote");
  if (!before(cell.writer, clock)) fault(rank, "reads what may not have arrived");
  cell.readers.push_back({thread, clock[index(thread)]});
}

inline void ScheduleMachine::write(Cell& cell, const Clock& clock, int thread, int rank) {
  if (!before(cell.writer, clock)) fault(rank, "two writes that nothing orders");
  for (const Cell::Access& reader : cell.readers)
    if (!before(reader, clock)) fault(rank, "overwrites what may still be read");
  cell.readers.clear();
  cell.writer = {thread, clock[index(thread)]};
  cell.written = true;
}

inline void ScheduleMachine::local(int r, const LocalStep& step) {
  if (step.to.role == BufferRole::in) fault(r, "writes its input");
  if (step.elements <= 0) fault(r, "an empty local step");
  Clock& clock = ranks_[index(r)].clock;
  ++clock[index(r)];
  Cell* from = cells(r, step.from, step.elements);
  Cell* to = cells(r, step.to, step.elements);
  const bool reduce = step.kind == LocalStep::Kind::reduce;
  for (Index i = 0; i < step.elements; ++i) {
    read(from[i], clock, r, r);
    if (reduce) read(to[i], clock, r, r);
    write(to[i], clock, r, r);
    to[i].value = from[i].value + (reduce ? to[i].value : 0);
    to[i].real = reduce ? to[i].real + from[i].real : from[i].real;
  }
}

inline void ScheduleMachine::put(int r, const Transfer& transfer) {
  if (transfer.to.role == BufferRole::in) fault(r, "puts into a peer's input");
  Message message{ranks_[index(r)].round, transfer.elements, ranks_[index(r)].clock};
  const int thread = threads_++;
  message.clock.resize(index(threads_));
  message.clock[index(thread)] = 1;
  Cell* from = cells(r, transfer.from, transfer.elements);
  Cell* to = cells(transfer.peer, transfer.to, transfer.elements);
  for (Index i = 0; i < transfer.elements; ++i) {
    read(from[i], message.clock, thread, r);
    write(to[i], message.clock, thread, r);
    to[i].value = from[i].value;
    to[i].real = from[i].real;
  }
  ranks_[index(transfer.peer)].arrived[index(r)].push_back(std::move(message));
}

}  // namespace weft
