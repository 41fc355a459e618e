// What the ports of this host and its kernel count: bytes and packets, what was lost and sent
// again.
//
//   PortCounters counters;                                    // opens what this host has
//   counters.start(); ...traffic...
//   for (const PortCounts& port : counters.lap()) ...         // since start() or the last lap()
//
// Counters differ between drivers; each name that is known here is mapped to a figure of weft's
// own. One that cannot be read, or does not make sense, is unknown: never 0, never an error.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "transports/counter_file.hpp"

namespace weft {

/// Events are counted where they cost time: retransmits, rnr_naks and cnp by the sender that takes
/// notice of them; out_of_sequence, duplicates and ecn_marked by the receiver.
enum class PortFigure : std::uint8_t {
  retransmits,      // times that a sender started to send again (TCP: segments)
  out_of_sequence,  // packets
  rnr_naks,         // receiver not ready
  duplicates,       // requests that had arrived before
  ecn_marked,       // packets
  cnp,              // congestion notifications that slowed a sender
  discards,         // packets that this host dropped
  pauses,           // ticks in which a port had data and was not allowed to send them
  tx_bytes,
  rx_bytes,
  tx_packets,
  rx_packets
};
inline constexpr std::size_t kPortFigures = 12;
/// "retransmits", ..., "port_tx_bytes", ...: the name of its column.
std::string_view to_string(PortFigure figure);

/// A value, or the reason why it is unknown, or neither: nothing counts it.
struct Counted {
  std::uint64_t value = 0;
  bool known = false;
  std::string why;

  bool absent() const { return !known && why.empty(); }
  /// Sum of two; unknown where either is, and the first reason stays. Absent things add nothing.
  Counted& operator+=(const Counted& other);
  bool operator==(const Counted&) const = default;
};

/// Of one port, or of the kernel's TCP and IP.
struct PortCounts {
  std::string source;  // "mlx5_0:1 counters+hw_counters", "/proc/net/snmp"
  bool rdma = false;
  std::array<Counted, kPortFigures> figures;

  Counted& operator[](PortFigure figure) { return figures[static_cast<std::size_t>(figure)]; }
  const Counted& operator[](PortFigure figure) const {
    return figures[static_cast<std::size_t>(figure)];
  }
  bool operator==(const PortCounts&) const = default;
};
/// Adds another interval of the same sources; an empty sum takes it as it is.
void add_interval(std::vector<PortCounts>& sum, const std::vector<PortCounts>& interval);

/// Where counters lie; tests give their own.
struct PortRoots {
  std::filesystem::path infiniband = "/sys/class/infiniband";
  std::filesystem::path snmp = "/proc/net/snmp";
};

/// The counters of a host: those of its active RDMA ports (one that comes up later is not seen),
/// and what the kernel's TCP and IP do for everybody on the host. Not safe for several threads.
/// Keeps files open, but no more than an eighth of the limit on open files; the others are opened
/// for each reading. A reading takes about 2 us a file, and waits (up to 20 ms) where the driver
/// would still show what it showed the last time: drivers cache hw_counters (file `lifespan`).
class PortCounters {
 public:
  explicit PortCounters(const PortRoots& roots = {});
  /// Begins an interval.
  void start() { read(); }
  /// What was counted since start() or the last lap(), by source; the next interval begins.
  std::vector<PortCounts> lap();
  /// No RDMA port is active here.
  bool without_rdma() const;

 private:
  struct Counter {
    std::size_t source = 0;
    PortFigure figure = PortFigure::retransmits;
    std::uint64_t unit = 1, end = 0;  // bytes of one count; where it stops, besides 2^32-1
    std::string name;
    CounterFile file;     // of a port
    std::string section;  // of snmp: "Tcp"
    CounterValue last;
  };
  void add_port(const std::filesystem::path& port, const std::string& name, std::size_t& kept);
  void add_snmp();
  void read();
  static Counted change(const Counter& counter, const CounterValue& before);

  std::vector<PortCounts> sources_;  // without figures
  std::vector<Counter> counters_;
  std::filesystem::path snmp_;
  std::chrono::milliseconds cached_{0};  // how old a reading may be that drivers give
  std::chrono::steady_clock::time_point read_at_;
};

}  // namespace weft
