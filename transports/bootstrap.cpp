#include "transports/bootstrap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "patterns/error.hpp"
#include "transports/bootstrap_hosts.hpp"

namespace weft {

std::vector<double> Bootstrap::all_gather(double mine) {
  const auto texts = all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<double> values(texts.size());
  for (std::size_t r = 0; r < texts.size(); ++r) {
    std::memcpy(&values[r], texts[r].data(), sizeof(double));
  }
  return values;
}

double Bootstrap::max(double mine) {
  const auto values = all_gather(mine);
  return *std::max_element(values.begin(), values.end());
}

double Bootstrap::sum(double mine) {
  double total = 0;
  for (const double value : all_gather(mine)) total += value;
  return total;
}

bool Bootstrap::all(bool mine) {
  const auto values = all_gather(mine ? 1.0 : 0.0);
  return std::all_of(values.begin(), values.end(), [](double v) { return v != 0.0; });
}

std::vector<std::string> Bootstrap::all_gather(const std::string& mine) {
  const auto gathered = all_gather(std::as_bytes(std::span(mine.data(), mine.size())));
  std::vector<std::string> texts;
  for (const auto& bytes : gathered) {
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return texts;
}

std::vector<int> Bootstrap::host_indices() const {
  std::map<std::string, int> known;
  std::vector<int> indices;
  for (const std::string& host : hosts()) {
    indices.push_back(known.try_emplace(host, static_cast<int>(known.size())).first->second);
  }
  return indices;
}

int Bootstrap::host_count() const {
  const auto indices = host_indices();
  return 1 + *std::max_element(indices.begin(), indices.end());
}

int Bootstrap::local_rank() const {
  const auto end = hosts().begin() + rank();
  return static_cast<int>(std::count(hosts().begin(), end, *end));
}

int Bootstrap::local_size() const {
  return static_cast<int>(
      std::count(hosts().begin(), hosts().end(), hosts()[static_cast<std::size_t>(rank())]));
}

std::vector<Rank> Bootstrap::host_leaders() const {
  std::vector<Rank> leaders;
  std::vector<std::string> seen;
  for (std::size_t rank = 0; rank < hosts().size(); ++rank) {
    const std::string host = real_host(hosts()[rank]);
    if (std::find(seen.begin(), seen.end(), host) != seen.end()) continue;
    seen.push_back(host);
    leaders.push_back(static_cast<Rank>(rank));
  }
  return leaders;
}

std::vector<std::string> with_virtual_hosts(std::vector<std::string> real, int ranks_per_host) {
  if (ranks_per_host < 0) {
    fail_usage(fmt::format("ranks per host is {}; give 1 or more, or 0 for the real hosts",
                           ranks_per_host));
  }
  if (ranks_per_host == 0) return real;
  std::map<std::string, int> seen;
  for (std::string& host : real) {
    const int local = seen[host]++;
    host += fmt::format("/v{}", local / ranks_per_host);
  }
  return real;
}

std::string real_host(const std::string& host) { return host.substr(0, host.rfind("/v")); }

std::vector<std::string> distinct_real_hosts(const std::vector<std::string>& hosts) {
  std::vector<std::string> distinct;
  for (const std::string& host : hosts) {
    const std::string real = real_host(host);
    if (std::find(distinct.begin(), distinct.end(), real) == distinct.end()) {
      distinct.push_back(real);
    }
  }
  return distinct;
}

}  // namespace weft
