#include "bench/burst.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace weft {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kFewestWindows = 2;
constexpr std::size_t kGapsForP99 = 100;

std::map<Rank, std::vector<const Message*>> by_sender(const std::vector<Message>& messages) {
  std::map<Rank, std::vector<const Message*>> senders;
  for (const Message& message : messages) senders[message.source].push_back(&message);
  for (auto& [rank, sent] : senders) {
    std::ranges::stable_sort(sent, {}, &Message::posted_us);
  }
  return senders;
}

std::vector<double> gaps_of(const std::vector<const Message*>& sent) {
  std::vector<double> gaps;
  double busy_until = sent.front()->completed_us;
  for (std::size_t i = 1; i < sent.size(); ++i) {
    gaps.push_back(std::max(0.0, sent[i]->posted_us - busy_until));
    busy_until = std::max(busy_until, sent[i]->completed_us);
  }
  return gaps;
}

double nearest_rank(std::vector<double>& values, double share) {
  const auto rank = static_cast<std::size_t>(
      std::max(1.0, std::ceil(share * static_cast<double>(values.size()) - 1e-9)));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

void add_frequency(Burstiness& result, const Timeline& timeline) {
  const auto senders = by_sender(timeline.messages);
  std::vector<double> gaps;
  for (const auto& [rank, sent] : senders) {
    const std::vector<double> mine = gaps_of(sent);
    gaps.insert(gaps.end(), mine.begin(), mine.end());
  }
  result.msgs_per_s = static_cast<double>(timeline.messages.size()) /
                      static_cast<double>(senders.size()) / timeline.span_us * 1e6;
  if (!gaps.empty()) result.gap_p50_us = nearest_rank(gaps, 0.5);
  if (gaps.size() >= kGapsForP99) result.gap_p99_us = nearest_rank(gaps, 0.99);
}

/// Of the host that sends most; of equal ones the first.
std::vector<Message> busiest_host(const std::vector<Message>& messages,
                                  const std::vector<int>& hosts) {
  const auto host = [&](const Message& m) { return hosts.at(static_cast<std::size_t>(m.source)); };
  std::map<int, Bytes> sent;
  for (const Message& message : messages) sent[host(message)] += message.bytes;
  const auto most =
      std::ranges::max_element(sent, {}, [](const auto& item) { return item.second; });
  std::vector<Message> result;
  std::ranges::copy_if(messages, std::back_inserter(result),
                       [&](const Message& message) { return host(message) == most->first; });
  return result;
}

void add_windows(Burstiness& result, std::size_t which, const std::vector<Message>& messages,
                 double span_us) {
  const double width = kWindowsUs[which];
  const std::vector<double> windows = bytes_in_windows(messages, span_us, width);
  if (windows.empty()) return;
  double total = 0, peak = 0;
  std::int64_t busy = 0;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const bool last = i + 1 == windows.size();
    const double own_width = last ? span_us - static_cast<double>(i) * width : width;
    total += windows[i];
    peak = std::max(peak, windows[i] / own_width);
    busy += windows[i] > 0;
  }
  result.duty_cycle[which] = static_cast<double>(busy) / static_cast<double>(windows.size());
  result.peak_to_mean[which] = peak / (total / span_us);
}

}  // namespace

Timeline Timeline::part(std::optional<Dimension> dim, std::optional<Network> network) const {
  Timeline result{span_us, {}, false};
  for (const Message& message : messages) {
    if ((dim && message.dim != *dim) || (network && message.network != *network)) continue;
    result.messages.push_back(message);
  }
  result.timed = timed && !result.messages.empty();
  return result;
}

Timeline timeline_of(const std::vector<InstrumentedIteration>& iterations) {
  Timeline timeline;
  bool timed = true;
  for (const InstrumentedIteration& iteration : iterations) {
    const double shift = timeline.span_us - iteration.begin_us;
    for (Message message : iteration.messages) {
      timed = timed && message.posted_us > 0;
      message.posted_us += shift;
      message.completed_us += shift;
      timeline.messages.push_back(message);
    }
    timeline.span_us += iteration.end_us - iteration.begin_us;
  }
  timeline.timed = timed && !timeline.messages.empty() && timeline.span_us > 0;
  return timeline;
}

std::vector<double> bytes_in_windows(const std::vector<Message>& messages, double span_us,
                                     double width_us) {
  const auto count = static_cast<std::size_t>(span_us / width_us);
  if (count < kFewestWindows) return {};
  std::vector<double> windows(count, 0.0);
  const auto window = [&](double at) {
    return std::min(static_cast<std::size_t>(std::max(at, 0.0) / width_us), count - 1);
  };
  for (const Message& message : messages) {
    const std::size_t first = window(message.posted_us), last = window(message.completed_us);
    const double duration = message.completed_us - message.posted_us;
    const auto bytes = static_cast<double>(message.bytes);
    if (first == last || duration <= 0) {
      windows[first] += bytes;
      continue;
    }
    for (std::size_t w = first; w <= last; ++w) {
      const double from = w == first ? message.posted_us : static_cast<double>(w) * width_us;
      const double to = w == last ? message.completed_us : static_cast<double>(w + 1) * width_us;
      windows[w] += bytes * (to - from) / duration;
    }
  }
  return windows;
}

Burstiness burstiness_of(const Timeline& timeline, const std::vector<int>& hosts) {
  Burstiness result{kNaN, kNaN, kNaN, {kNaN, kNaN, kNaN}, {kNaN, kNaN, kNaN}};
  if (!timeline.timed) return result;
  add_frequency(result, timeline);
  const std::vector<Message> sent = busiest_host(timeline.messages, hosts);
  for (std::size_t which = 0; which < kWindowsUs.size(); ++which) {
    add_windows(result, which, sent, timeline.span_us);
  }
  return result;
}

}  // namespace weft
