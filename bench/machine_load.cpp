#include "bench/machine_load.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include "bench/affinity.hpp"
#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kCoarsest =
    0.1;  // resolution, as a share of an interval, that still says something

double seconds_to_us(double seconds) { return seconds * 1e6; }

double clock_us(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

double tick_us() { return seconds_to_us(1.0 / static_cast<double>(sysconf(_SC_CLK_TCK))); }

Descriptor open_to_read(const std::string& path) {
  return Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

/// All of a small file of /proc or /sys; read anew each time.
std::string text_of(const Descriptor& file) {
  std::string text(1 << 14, '\0');
  std::size_t got = 0;
  for (;;) {
    const ssize_t n =
        pread(file.get(), text.data() + got, text.size() - got, static_cast<off_t>(got));
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
    if (got == text.size()) text.resize(2 * text.size());
  }
  text.resize(got);
  return text;
}

std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(" \n"));
  text.remove_prefix(word.size());
  return word;
}

double number(std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end != word.data() ? value : kUnknown;
}

/// The number behind `key` in lines "key value".
std::optional<double> value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view word = next_word(text);
    const std::string_view value = next_word(text);
    if (word == key) return number(value);
  }
  return std::nullopt;
}

/// Time that a control group was throttled, us: of v1 in ns, of v2 in us.
std::optional<double> throttled(std::string_view text) {
  if (const auto us = value_of(text, "throttled_usec")) return us;
  if (const auto ns = value_of(text, "throttled_time")) return *ns / 1e3;
  return std::nullopt;
}

/// Only some levels have the counters: a v2 group without the cpu controller has not.
std::vector<Descriptor> open_group_stats(const std::string& root) {
  for (const ControlGroups version : {ControlGroups::v1, ControlGroups::v2}) {
    std::vector<Descriptor> files;
    for (const std::string& level : control_group_levels(root, "cpu", version)) {
      Descriptor file = open_to_read(level + "/cpu.stat");
      if (file.get() >= 0 && throttled(text_of(file))) files.push_back(std::move(file));
    }
    if (!files.empty()) return files;
  }
  return {};
}

bool leads_its_host(const Bootstrap& bootstrap) {
  const std::vector<Rank> leaders = bootstrap.host_leaders();
  return std::ranges::find(leaders, bootstrap.rank()) != leaders.end();
}

/// The larger; an unknown value only where both are.
double worse(double a, double b) { return std::fmax(a, b); }

double share(double part_us, double whole_us) { return std::clamp(part_us / whole_us, 0.0, 1.0); }

}  // namespace

MachineLoad& MachineLoad::operator+=(const MachineLoad& other) {
  wall_us += other.wall_us;
  busy_us += other.busy_us;
  steal_us += other.steal_us;
  own_us += other.own_us;
  throttled_us += other.throttled_us;
  resolution_us += other.resolution_us;
  cpus = std::max(cpus, other.cpus);
  return *this;
}

LoadMeter::LoadMeter(Bootstrap& bootstrap)
    : LoadMeter(host_cpus(bootstrap), leads_its_host(bootstrap)) {}

LoadMeter::LoadMeter(std::vector<int> cpus, bool reads_cpus, const std::string& root)
    : cpus_(std::move(cpus)), group_stats_(open_group_stats(root)) {
  if (reads_cpus) stat_ = open_to_read(root + "/proc/stat");
}

void LoadMeter::start() { first_ = read(); }

MachineLoad LoadMeter::stop() const {
  const Reading last = read();
  MachineLoad load;
  load.cpus = static_cast<int>(cpus_.size());
  load.wall_us = last.at_us - first_.at_us;
  load.own_us = last.own_us - first_.own_us;
  load.steal_us = last.steal_us - first_.steal_us;
  // Busy by what was not idle: idle time is measured to the microsecond between its ticks, while
  // the time of tasks is sampled at ticks and misses what sleeps before each.
  load.busy_us = load.wall_us * load.cpus - (last.idle_us - first_.idle_us) - load.steal_us;
  load.throttled_us = last.throttled_us - first_.throttled_us;
  load.resolution_us = tick_us() * load.cpus;
  return load;
}

LoadMeter::Reading LoadMeter::read() const {
  Reading reading;
  read_cpus(reading);
  reading.throttled_us = group_stats_.empty() ? kUnknown : 0;
  for (const Descriptor& file : group_stats_)
    reading.throttled_us += throttled(text_of(file)).value_or(kUnknown);
  reading.at_us = clock_us(CLOCK_MONOTONIC);
  reading.own_us = clock_us(CLOCK_PROCESS_CPUTIME_ID);
  return reading;
}

/// Lines "cpu3 user nice system idle iowait irq softirq steal guest guest_nice", in ticks.
void LoadMeter::read_cpus(Reading& reading) const {
  const std::string stat = stat_.get() < 0 ? std::string() : text_of(stat_);
  std::string_view text = stat;
  std::size_t found = 0;
  while (text.starts_with("cpu")) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const double cpu = number(next_word(line).substr(3));
    if (!std::ranges::binary_search(cpus_, static_cast<int>(std::isnan(cpu) ? -1 : cpu))) continue;
    double fields[8];
    for (double& field : fields) field = number(next_word(line)) * tick_us();
    reading.idle_us += fields[3] + fields[4];
    reading.steal_us += fields[7];
    ++found;
  }
  if (found < cpus_.size() || found == 0) reading.idle_us = reading.steal_us = kUnknown;
}

LoadShares load_shares(const std::vector<MachineLoad>& ranks) {
  LoadShares shares{kUnknown, kUnknown, kUnknown};
  const double own = std::accumulate(ranks.begin(), ranks.end(), 0.0,
                                     [](double sum, const auto& r) { return sum + r.own_us; });
  for (const MachineLoad& rank : ranks) {
    shares.throttled_us = worse(shares.throttled_us, rank.throttled_us);
    const double capacity = rank.wall_us * rank.cpus;
    if (std::isnan(rank.busy_us) || !(rank.resolution_us <= kCoarsest * capacity)) continue;
    shares.other_load = share(rank.busy_us - own, capacity);
    shares.steal = share(rank.steal_us, capacity);
  }
  return shares;
}

LoadShares load_shares(Bootstrap& bootstrap, const MachineLoad& mine) {
  const auto records = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::map<std::string, std::vector<MachineLoad>> of_host;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    MachineLoad load;
    std::memcpy(&load, records[rank].data(), sizeof load);
    of_host[real_host(bootstrap.hosts()[rank])].push_back(load);
  }
  LoadShares worst{kUnknown, kUnknown, kUnknown};
  for (const auto& [host, loads] : of_host) {
    const LoadShares shares = load_shares(loads);
    worst.other_load = worse(worst.other_load, shares.other_load);
    worst.steal = worse(worst.steal, shares.steal);
    worst.throttled_us = worse(worst.throttled_us, shares.throttled_us);
  }
  return worst;
}

}  // namespace weft
