#include "bench/progress_board.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "bench/clock_sync.hpp"
#include "patterns/error.hpp"
#include "transports/bootstrap_hosts.hpp"
#include "transports/shm_sockets.hpp"

namespace weft {
namespace {

constexpr Bytes kHeaderBytes = 4096;
// A thread that wakes ten times a second may wait this long for a core on a crowded machine.
constexpr double kSilentAfterUs = 1.5e6;

/// Of a process: its state's letter and when it started. False: there is no such process.
struct ProcessFacts {
  bool exists = false;
  char state = '?';
  std::uint64_t born = 0;
};

ProcessFacts facts_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return {};
  constexpr int kBorn = 19;  // words after the state: field 22 of proc(5)
  std::istringstream words(text.substr(std::min(text.rfind(')') + 2, text.size())));
  ProcessFacts facts{.exists = true};
  words >> facts.state;
  std::string word;
  for (int i = 0; i < kBorn - 1; ++i) words >> word;
  words >> facts.born;
  return facts;
}

std::uint64_t own_pid_space() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

void introduce(ProgressSlot& slot) {
  slot.pid.store(getpid());
  slot.pid_space.store(own_pid_space());
  slot.born.store(facts_of(getpid()).born);
  slot.pulse_us.store(monotonic_us());
  slot.set_activity("starting");
}

std::vector<Rank> ranks_of_host(const Bootstrap& bootstrap) {
  const auto& hosts = bootstrap.hosts();
  const std::string here = real_host(hosts[static_cast<std::size_t>(bootstrap.rank())]);
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < bootstrap.size(); ++rank) {
    if (real_host(hosts[static_cast<std::size_t>(rank)]) == here) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

void ProgressSlot::set_activity(std::string_view activity) {
  const unsigned next = 1 - text_at.load(std::memory_order_relaxed);
  const std::size_t length = std::min(activity.size(), kTextBytes - 1);
  std::memcpy(text[next], activity.data(), length);
  text[next][length] = '\0';
  text_at.store(next, std::memory_order_release);
}

std::string ProgressSlot::activity() const {
  return text[text_at.load(std::memory_order_acquire) & 1];
}

ProgressBoard::ProgressBoard(Bootstrap& bootstrap) : ranks_(ranks_of_host(bootstrap)) {
  const auto bytes =
      kHeaderBytes + static_cast<Bytes>(ranks_.size()) * static_cast<Bytes>(sizeof(ProgressSlot));
  Descriptor memory = make_memfd("weft-board", bytes);
  const Rank leader = ranks_.front();
  try {
    Descriptor shared = fetch_descriptor(bootstrap, memory.get(), leader);
    if (shared.get() >= 0) memory = std::move(shared);
    own_ = static_cast<std::size_t>(std::ranges::find(ranks_, bootstrap.rank()) - ranks_.begin());
  } catch (const Error&) {
    ranks_ = {bootstrap.rank()};  // the same on all ranks: nobody sees more than itself
  }
  memory_ = std::make_unique<SharedMapping>(memory.get(), bytes);
  introduce(mine());
  bootstrap.barrier();
}

ProgressSlot& ProgressBoard::slot(std::size_t index) const {
  return reinterpret_cast<ProgressSlot*>(memory_->data() + kHeaderBytes)[index];
}

void ProgressBoard::pulse(std::string_view activity) {
  mine().set_activity(activity);
  mine().pulse_us.store(monotonic_us(), std::memory_order_relaxed);
}

bool ProgressBoard::same_process_space(const ProgressSlot& slot) const {
  static const std::uint64_t own = own_pid_space();
  return own != 0 && slot.pid_space.load() == own;
}

RankState ProgressBoard::state_of(std::size_t index) const {
  using Condition = RankState::Condition;
  const ProgressSlot& seen = slot(index);
  RankState state{ranks_[index], Condition::alive, seen.beats.load(), seen.activity()};
  if (index == own_) {  // the watchdog's thread looks: the first one may be stuck all the same
    if (facts_of(getpid()).state == 'D') state.condition = Condition::blocked;
    return state;
  }
  if (monotonic_us() - seen.pulse_us.load() > kSilentAfterUs) state.condition = Condition::silent;
  if (!same_process_space(seen)) return state;
  const ProcessFacts facts = facts_of(seen.pid.load());
  const bool ended =
      !facts.exists || facts.born != seen.born.load() || facts.state == 'Z' || facts.state == 'X';
  if (ended) state.condition = Condition::dead;
  if (!ended && (facts.state == 'T' || facts.state == 't')) state.condition = Condition::stopped;
  if (facts.state == 'D') state.condition = Condition::blocked;
  return state;
}

std::vector<RankState> ProgressBoard::look() const {
  std::vector<RankState> states;
  for (std::size_t i = 0; i < ranks_.size(); ++i) states.push_back(state_of(i));
  return states;
}

bool ProgressBoard::claim_last_word() {
  int nobody = 0;
  return header().claimed.compare_exchange_strong(nobody, 1);
}

void ProgressBoard::kill_missing() const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const ProgressSlot& other = slot(i);
    if (i == own_ || !same_process_space(other)) continue;
    const RankState state = state_of(i);
    const bool missing = state.condition != RankState::Condition::alive &&
                         state.condition != RankState::Condition::dead;
    if (missing) kill(other.pid.load(), SIGKILL);
  }
}

std::vector<Descriptor> ProgressBoard::open_processes() const {
  std::vector<Descriptor> processes;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const bool reachable = same_process_space(slot(i));
    processes.emplace_back(
        reachable ? static_cast<int>(syscall(SYS_pidfd_open, slot(i).pid.load(), 0)) : -1);
  }
  return processes;
}

}  // namespace weft
