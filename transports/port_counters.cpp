#include "transports/port_counters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <set>
#include <thread>

namespace weft {
namespace {

using enum PortFigure;

constexpr std::array<std::string_view, kPortFigures> kColumnNames = {
    "retransmits",   "out_of_sequence", "rnr_naks",
    "duplicates",    "ecn_marked",      "cnp",
    "discards",      "pauses",          "port_tx_bytes",
    "port_rx_bytes", "port_tx_packets", "port_rx_packets"};

// Counters of 32 bits stop here, or start anew: either way the last ones are lost.
constexpr std::uint64_t kEndOf32Bits = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kEndOf16Bits = std::numeric_limits<std::uint16_t>::max();
// The driver looks at its clock's ticks, the coarsest of which are 10 ms.
constexpr std::chrono::milliseconds kTick{10}, kLongestCache{100};
constexpr std::size_t kShareOfFiles = 8;

struct KnownCounter {
  std::string_view folder, name;
  PortFigure figure;
  std::uint64_t unit = 1, end = kEndOf32Bits;
};

// Bytes and packets: the first that a port has. All other figures: the sum of those that it has.
constexpr KnownCounter kKnown[] = {
    // InfiniBand's own; data in units of 4 bytes, discards in 16 bits
    {"counters", "port_xmit_data", tx_bytes, 4},
    {"counters", "port_rcv_data", rx_bytes, 4},
    {"counters", "port_xmit_packets", tx_packets},
    {"counters", "port_rcv_packets", rx_packets},
    {"counters", "port_xmit_wait", pauses},
    {"counters", "port_xmit_discards", discards, 1, kEndOf16Bits},
    // rxe. A completer retries after a time-out and after a NAK of the sequence.
    {"hw_counters", "sent_pkts", tx_packets},
    {"hw_counters", "rcvd_pkts", rx_packets},
    {"hw_counters", "completer_retry_err", retransmits},
    {"hw_counters", "out_of_seq_request", out_of_sequence},
    {"hw_counters", "rcvd_rnr_err", rnr_naks},
    {"hw_counters", "duplicate_request", duplicates},  // mlx5 too
    // mlx5
    {"hw_counters", "local_ack_timeout_err", retransmits},
    {"hw_counters", "packet_seq_err", retransmits},
    {"hw_counters", "implied_nak_seq_err", retransmits},
    {"hw_counters", "roce_adp_retrans", retransmits},
    {"hw_counters", "out_of_sequence", out_of_sequence},
    {"hw_counters", "rnr_nak_retry_err", rnr_naks},
    {"hw_counters", "np_ecn_marked_roce_packets", ecn_marked},
    {"hw_counters", "rp_cnp_handled", cnp},
    {"hw_counters", "out_of_buffer", discards},
    // bnxt_re
    {"hw_counters", "tx_bytes", tx_bytes},
    {"hw_counters", "rx_bytes", rx_bytes},
    {"hw_counters", "tx_pkts", tx_packets},
    {"hw_counters", "rx_pkts", rx_packets},
    {"hw_counters", "to_retransmits", retransmits},
    {"hw_counters", "seq_err_naks_rcvd", retransmits},
    {"hw_counters", "oos_drop_count", out_of_sequence},
    {"hw_counters", "rnr_naks_rcvd", rnr_naks},
    {"hw_counters", "dup_req", duplicates},
    {"hw_counters", "rx_ecn_marked_pkts", ecn_marked},
    {"hw_counters", "rx_cnp_pkts", cnp},
    {"hw_counters", "rx_roce_discards", discards},
    {"hw_counters", "tx_roce_discards", discards}};

struct SnmpCounter {
  std::string_view section, column;
  PortFigure figure;
};
constexpr SnmpCounter kSnmp[] = {{"Tcp", "RetransSegs", retransmits},
                                 {"Ip", "InDiscards", discards},
                                 {"Ip", "OutDiscards", discards},
                                 {"Udp", "RcvbufErrors", discards},
                                 {"Udp", "SndbufErrors", discards}};

bool moves_data(PortFigure figure) { return figure >= tx_bytes; }

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// How many files may stay open; the transports need the others.
std::size_t files_to_keep() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<std::size_t>(limit.rlim_cur) / kShareOfFiles;
}

bool is_active(const std::filesystem::path& port) {
  std::string why;
  return CounterFile(port / "state", false).text(why).starts_with("4:");
}

}  // namespace

std::string_view to_string(PortFigure figure) {
  return kColumnNames[static_cast<std::size_t>(figure)];
}

Counted& Counted::operator+=(const Counted& other) {
  if (other.absent()) return *this;
  if (why.empty()) why = other.why;
  value += other.value;
  known = why.empty();
  if (!known) value = 0;
  return *this;
}

void add_interval(std::vector<PortCounts>& sum, const std::vector<PortCounts>& interval) {
  if (sum.empty()) {
    sum = interval;
    return;
  }
  for (std::size_t i = 0; i < std::min(sum.size(), interval.size()); ++i) {
    for (std::size_t f = 0; f < kPortFigures; ++f) sum[i].figures[f] += interval[i].figures[f];
  }
}

PortCounters::PortCounters(const PortRoots& roots) : snmp_(roots.snmp) {
  std::size_t kept = files_to_keep();
  for (const std::string& device : names_in(roots.infiniband)) {
    const std::filesystem::path ports = roots.infiniband / device / "ports";
    for (const std::string& port : names_in(ports)) {
      if (is_active(ports / port)) {
        add_port(ports / port, fmt::format("{}:{}", device, port), kept);
      }
    }
  }
  add_snmp();
}

void PortCounters::add_port(const std::filesystem::path& port, const std::string& name,
                            std::size_t& kept) {
  std::set<PortFigure> found;
  std::vector<std::string_view> folders;
  for (const KnownCounter& known : kKnown) {
    const std::filesystem::path path = port / known.folder / known.name;
    if (!is_there(path) || (moves_data(known.figure) && found.contains(known.figure))) continue;
    found.insert(known.figure);
    if (folders.empty() || folders.back() != known.folder) folders.push_back(known.folder);
    const bool keep = kept > 0;
    kept -= keep;
    counters_.push_back({sources_.size(),
                         known.figure,
                         known.unit,
                         known.end,
                         std::string(known.name),
                         CounterFile(path, keep),
                         "",
                         {}});
  }
  const CounterValue lifespan = CounterFile(port / "hw_counters" / "lifespan", false).value();
  if (lifespan.why.empty() && lifespan.value > 0) {
    const auto shown =
        static_cast<std::int64_t>(std::min<std::uint64_t>(lifespan.value, kLongestCache.count()));
    cached_ = std::max(cached_, std::chrono::milliseconds(shown) + kTick);
  }
  PortCounts source;
  source.source = folders.empty() ? fmt::format("{} without known counters", name)
                                  : fmt::format("{} {}", name, fmt::join(folders, "+"));
  source.rdma = true;
  sources_.push_back(std::move(source));
}

void PortCounters::add_snmp() {
  if (!is_there(snmp_)) return;
  for (const SnmpCounter& known : kSnmp) {
    counters_.push_back({sources_.size(),
                         known.figure,
                         1,
                         kEndOf32Bits,
                         std::string(known.column),
                         {},
                         std::string(known.section),
                         {}});
  }
  PortCounts source;
  source.source = snmp_.string();
  sources_.push_back(std::move(source));
}

bool PortCounters::without_rdma() const {
  return std::ranges::none_of(sources_, &PortCounts::rdma);
}

void PortCounters::read() {
  if (cached_.count() > 0) std::this_thread::sleep_until(read_at_ + cached_);
  std::string snmp, why;
  bool looked = false;
  for (Counter& counter : counters_) {
    if (counter.section.empty()) {
      counter.last = counter.file.value();
      continue;
    }
    if (!looked) snmp = CounterFile(snmp_, false).text(why);
    looked = true;
    counter.last =
        why.empty() ? snmp_value(snmp, counter.section, counter.name) : CounterValue{0, why};
  }
  read_at_ = std::chrono::steady_clock::now();
}

Counted PortCounters::change(const Counter& counter, const CounterValue& before) {
  const CounterValue& after = counter.last;
  Counted change;
  for (const CounterValue* reading : {&before, &after}) {
    if (!reading->why.empty()) change.why = reading->why;
    if (reading->value == kEndOf32Bits || reading->value == counter.end) {
      change.why = fmt::format("stands at {}, where it cannot go on", reading->value);
    }
  }
  if (change.why.empty() && after.value < before.value) {
    change.why = fmt::format("went back from {} to {}", before.value, after.value);
  }
  if (!change.why.empty()) {
    change.why = fmt::format("{} {}", counter.name, change.why);
    return change;
  }
  change.value = (after.value - before.value) * counter.unit;
  change.known = true;
  return change;
}

std::vector<PortCounts> PortCounters::lap() {
  std::vector<CounterValue> before;
  for (const Counter& counter : counters_) before.push_back(counter.last);
  read();
  std::vector<PortCounts> counts = sources_;
  for (std::size_t i = 0; i < counters_.size(); ++i) {
    counts[counters_[i].source][counters_[i].figure] += change(counters_[i], before[i]);
  }
  return counts;
}

}  // namespace weft
