#include "bench/provenance.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <string_view>

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <nlohmann/json.hpp>

#include "bench/row.hpp"

extern char** environ;

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

/// Names that begin so change what is measured.
constexpr std::array<std::string_view, 16> kPrefixes{
    "OMP_",   "OPENBLAS_", "GOTO_",          "MPICH_",    "MPIR_CVAR_", "HYDRA_",
    "UCX_",   "FI_",       "SLURM_",         "NCCL_",     "WEFT_",      "CUDA_",
    "HWLOC_", "MALLOC_",   "GLIBC_TUNABLES", "LD_PRELOAD"};
/// Values under such names are nobody's business (SLURM_JWT is a login).
constexpr std::array<std::string_view, 6> kSecret{"JWT",      "TOKEN",      "SECRET",
                                                  "PASSWORD", "CREDENTIAL", "_KEY"};

bool changes_behaviour(std::string_view name) {
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](auto prefix) { return name.starts_with(prefix); });
}

bool secret(std::string_view name) {
  return std::any_of(kSecret.begin(), kSecret.end(),
                     [&](auto part) { return name.find(part) != name.npos; });
}

Json environment() {
  Json found = Json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (name.size() == text.size() || !changes_behaviour(name)) continue;
    found[std::string(name)] =
        secret(name) ? "(hidden)" : std::string(text.substr(name.size() + 1));
  }
  return found;
}

/// 0 stands for unknown in the inventory, null in JSON.
template <class Number>
Json known(Number value) {
  return value > 0 ? Json(value) : Json();
}

Json interface_json(const NetworkInterface& interface) {
  return {{"name", interface.name},
          {"link_gbps", known(interface.link_gbps)},
          {"rate_source", interface.rate_source},
          {"numa", interface.numa < 0 ? Json() : Json(interface.numa)}};
}

Json host_json(const HostInventory& host, const CpuLimits& limits) {
  Json interfaces = Json::array();
  for (const NetworkInterface& interface : host.interfaces)
    interfaces.push_back(interface_json(interface));
  return {{"host", host.host},
          {"cpu", host.cpu},
          {"kernel", host.kernel},
          {"cores", known(host.cores)},
          {"usable_cpus", limits.usable_cpus},
          {"cpu_quota", limits.quota},
          {"cpu_quota_cores", known(host.cpu_quota)},
          {"numa_nodes", known(host.numa_nodes)},
          {"memory_bytes", known(host.memory)},
          {"last_level_cache_bytes", known(host.last_level_cache)},
          {"interfaces", std::move(interfaces)}};
}

Json libraries(const RunFacts& facts) {
  return {{"mpi", facts.mpi_library.empty() ? Json() : Json(facts.mpi_library)},
          {"kernels", facts.kernels},
          {"libc", fmt::format("glibc {}", gnu_get_libc_version())},
          {"compiler", __VERSION__},
          {"arch", WEFT_ARCH}};
}

/// splitmix64's finisher: every bit of the input reaches every bit of the output.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

std::string provenance_json(const RunFacts& facts) {
  Json hosts = Json::array();
  for (std::size_t i = 0; i < facts.inventory.size(); ++i) {
    const bool limits = i < facts.cpu_limits.size();
    hosts.push_back(host_json(facts.inventory[i], limits ? facts.cpu_limits[i] : CpuLimits{}));
  }
  const Json all{{"schema", kSchema},
                 {"launch_id", facts.launch_id},
                 {"weft", WEFT_VERSION},
                 {"time_utc", utc_now()},
                 {"command_line", facts.command_line},
                 {"ranks", facts.hosts.size()},
                 {"rank_hosts", facts.hosts},
                 {"hosts", std::move(hosts)},
                 {"libraries", libraries(facts)},
                 {"threads_per_rank", facts.threads_per_rank},
                 {"timer_cost_ns", known(facts.timer_cost_ns)},
                 {"copy_limit_GBps", known(facts.copy_limit_GBps)},
                 {"environment", environment()}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string make_launch_id() {
  std::uint64_t random = 0;
  [[maybe_unused]] const ssize_t got = ::getrandom(&random, sizeof random, 0);
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::uint64_t id = mixed(random ^ mixed(static_cast<std::uint64_t>(now)));
  id = mixed(id ^ static_cast<std::uint64_t>(::getpid()));
  for (const char* c = host.data(); *c != '\0'; ++c)
    id = mixed(id ^ static_cast<unsigned char>(*c));
  // A letter first: no reader takes "1234567890123456" or "12e45..." for a number.
  const char letter = static_cast<char>('a' + id % 6);
  return fmt::format("{}{:015x}", letter, id >> 4);
}

std::string utc_now() { return utc_text(std::time(nullptr)); }

std::string utc_text(std::time_t when) {
  std::tm utc{};
  ::gmtime_r(&when, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace weft
