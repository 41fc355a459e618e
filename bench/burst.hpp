// How often messages go, and how they bunch: figures of this machine's speed, unlike sizes and
// counts.
//
//   const Timeline timeline = timeline_of(iterations);       // one after the other, without pauses
//   const Burstiness bursts = burstiness_of(timeline, host_of_rank);
#pragma once

#include <array>
#include <optional>

#include "bench/instrument.hpp"

namespace weft {

/// Messages of successive iterations, each of which begins where the one before ended: training
/// does not pause between them, only the agreement on a common start does.
struct Timeline {
  double span_us = 0;
  std::vector<Message> messages;  // payload; times since the first iteration's begin
  bool timed = false;             // false: the wire told no times, or there is nothing to tell of

  Timeline part(std::optional<Dimension> dim, std::optional<Network> network) const;
};
Timeline timeline_of(const std::vector<InstrumentedIteration>& iterations);

/// Widths of windows, us: of plain names, the smallest that fits.
inline constexpr std::array<double, 3> kWindowsUs = {100, 1e3, 10e3};

/// NaN where unknown: without times, below two messages of a sender (gaps), or where fewer than two
/// windows fit into the span. The p99 of gaps needs 100 of them.
struct Burstiness {
  double msgs_per_s = 0;  // messages / (senders x span)
  /// From the end of a sender's messages so far to its next post, 0 where that came before; over
  /// all senders.
  double gap_p50_us = 0, gap_p99_us = 0;
  /// Of the host whose ranks send most bytes. A message's bytes are spread evenly over [posted,
  /// completed]. Share of windows with traffic; rate of the fullest window over the mean rate.
  std::array<double, 3> duty_cycle{}, peak_to_mean{};
};
/// `hosts`: host index of each rank.
Burstiness burstiness_of(const Timeline& timeline, const std::vector<int>& hosts);

/// Bytes in windows of `width` us from 0 on; the last one reaches to `span_us`, so it is up to
/// twice as wide and no byte is left out. Empty where the span has less than two windows.
std::vector<double> bytes_in_windows(const std::vector<Message>& messages, double span_us,
                                     double width_us);

}  // namespace weft
