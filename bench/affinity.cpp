#include "bench/affinity.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

using Mask = std::set<int>;

Mask own_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  Mask mask;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) mask.insert(cpu);
  }
  return mask;
}

std::vector<Mask> gather(Bootstrap& bootstrap, const Mask& mine) {
  const std::vector<int> cpus(mine.begin(), mine.end());
  std::vector<Mask> masks;
  for (const auto& bytes : bootstrap.all_gather(std::as_bytes(std::span(cpus)))) {
    const auto* first = reinterpret_cast<const int*>(bytes.data());
    masks.emplace_back(first, first + bytes.size() / sizeof(int));
  }
  return masks;
}

bool meet(const Mask& a, const Mask& b) {
  return std::ranges::any_of(a, [&](int cpu) { return b.contains(cpu); });
}

std::string ranges_text(const Mask& mask) {
  std::vector<std::string> parts;
  for (auto at = mask.begin(); at != mask.end();) {
    const int first = *at;
    int last = first;
    while (++at != mask.end() && *at == last + 1) last = *at;
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

// NUMA nodes of these processors, as the system lists them; 0: unknown.
std::size_t numa_nodes(const Mask& mask) {
  std::set<std::string> nodes;
  for (int cpu : mask) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(
             fmt::format("/sys/devices/system/cpu/cpu{}", cpu), error)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("node")) nodes.insert(name);
    }
  }
  return nodes.size();
}

std::string binding_note(const Mask& mine, int sharing, int cores) {
  const auto mask = static_cast<int>(mine.size());
  const auto online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (sharing > mask && online > cores) {
    return fmt::format("{} ranks are bound to {} of the host's {} processors", sharing, mask,
                       online);
  }
  if (numa_nodes(mine) > 1) return "a rank's processors lie on several NUMA nodes";
  if (sharing > 1 && mask > 1) return "ranks are not bound to processors of their own";
  return {};
}

}  // namespace

std::vector<int> host_cpus(Bootstrap& bootstrap) {
  const std::vector<Mask> masks = gather(bootstrap, own_mask());
  const auto& hosts = bootstrap.hosts();
  const std::string here = real_host(hosts[static_cast<std::size_t>(bootstrap.rank())]);
  Mask together;
  for (std::size_t rank = 0; rank < masks.size(); ++rank) {
    if (real_host(hosts[rank]) == here) together.insert(masks[rank].begin(), masks[rank].end());
  }
  return {together.begin(), together.end()};
}

std::string cpu_list(const std::vector<int>& cpus) {
  return ranges_text(Mask(cpus.begin(), cpus.end()));
}

CpuShare share_cpus(Bootstrap& bootstrap) {
  const Mask mine = own_mask();
  const std::vector<Mask> masks = gather(bootstrap, mine);
  const auto& hosts = bootstrap.hosts();
  const std::string here = real_host(hosts[static_cast<std::size_t>(bootstrap.rank())]);
  Mask together;
  int sharing = 0, local = 0;
  for (std::size_t rank = 0; rank < masks.size(); ++rank) {
    if (real_host(hosts[rank]) != here) continue;
    ++local;
    sharing += meet(masks[rank], mine);
    together.insert(masks[rank].begin(), masks[rank].end());
  }
  CpuShare share;
  share.cores = static_cast<int>(together.size());
  share.threads_per_rank = std::max(1, static_cast<int>(mine.size()) / std::max(1, sharing));
  // Ranks that share a mask smaller than their number take turns, however many cores the host has
  // besides.
  const bool crowded = sharing > static_cast<int>(mine.size()) || local > share.cores;
  share.oversubscribed = !bootstrap.all(!crowded);
  share.binding = ranges_text(mine);
  share.cores_per_rank = static_cast<double>(mine.size()) / std::max(1, sharing);
  for (const std::string& note : bootstrap.all_gather(binding_note(mine, sharing, share.cores))) {
    if (share.note.empty()) share.note = note;
  }
  return share;
}

}  // namespace weft
