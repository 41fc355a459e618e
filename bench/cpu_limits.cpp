// What a quota or a cpuset leaves of a host's CPUs, for the provenance.
#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <optional>

#include "bench/affinity.hpp"
#include "bench/machine_load.hpp"

namespace weft {
namespace {

std::optional<double> number(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end == word.data()) return std::nullopt;
  return value;
}

struct Quota {
  double quota_us = 0, period_us = 0;
  std::string directory;
  double cpus() const { return quota_us / period_us; }
};

/// v2 "max 100000" and v1 "-1" are no quota.
std::optional<Quota> quota_in(const std::string& directory, ControlGroups version) {
  std::string quota, period;
  if (version == ControlGroups::v2) {
    std::ifstream(directory + "/cpu.max") >> quota >> period;
  } else {
    std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(directory + "/cpu.cfs_period_us") >> period;
  }
  const auto q = number(quota), p = number(period);
  if (!q || !p || *q <= 0 || *p <= 0) return std::nullopt;
  return Quota{*q, *p, directory};
}

}  // namespace

std::string cpu_quota_text(const std::string& root) {
  std::optional<Quota> tightest;
  bool known = false;
  for (const ControlGroups version : {ControlGroups::v1, ControlGroups::v2}) {
    for (const std::string& level : control_group_levels(root, "cpu", version)) {
      known = true;
      const auto quota = quota_in(level, version);
      if (quota && (!tightest || quota->cpus() < tightest->cpus())) tightest = quota;
    }
  }
  if (!tightest) return known ? "none" : "unknown";
  return fmt::format("{:.4g} CPU ({} of each {} us, {})", tightest->cpus(), tightest->quota_us,
                     tightest->period_us, tightest->directory);
}

std::vector<CpuLimits> gather_cpu_limits(Bootstrap& bootstrap) {
  const auto cpus = bootstrap.all_gather(cpu_list(host_cpus(bootstrap)));
  const auto quotas = bootstrap.all_gather(cpu_quota_text());
  std::vector<CpuLimits> limits;
  for (const Rank leader : bootstrap.host_leaders()) {
    const auto rank = static_cast<std::size_t>(leader);
    limits.push_back({cpus[rank], quotas[rank]});
  }
  return limits;
}

}  // namespace weft
