#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>

#include "patterns/error.hpp"
#include "transports/bootstrap.hpp"
#include "transports/bootstrap_hosts.hpp"
#include "transports/hydra.hpp"
#include "transports/mpi_wait.hpp"

namespace weft {

void fail_mpi(int code, const char* call) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string words(text.data(), static_cast<std::size_t>(length));
  for (char& c : words) c = c == '\n' ? ' ' : c;
  fail_usage(fmt::format("rank {}: MPI says \"{}\" in {}", rank, words, call));
}

namespace {

/// Node name and boot id: two machines may have one name, and a container may have a name of its
/// own.
std::string host_key() {
  utsname names{};
  uname(&names);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(names.nodename) + "\n" + boot;
}

/// Node names; a name that several machines have gets "#2", "#3", ... from its second machine on.
std::vector<std::string> host_names(const std::vector<std::string>& keys) {
  std::map<std::string, std::string> names;
  std::map<std::string, int> machines;
  std::vector<std::string> hosts;
  for (const std::string& key : keys) {
    auto [entry, fresh] = names.try_emplace(key, key.substr(0, key.find('\n')));
    if (fresh) {
      const int nth = ++machines[entry->second];
      if (nth > 1) entry->second += fmt::format("#{}", nth);
    }
    hosts.push_back(entry->second);
  }
  return hosts;
}

constexpr unsigned long kSharedMemoryOfMpi =
    32UL << 20;  // seen: 1 MiB is too little for MPICH's start, 64 MiB enough

// MPICH's UCX dies in MPI_Init where it cannot share memory by /dev/shm: with too little of it
// (containers), or where every rank is process 1 of a namespace of its own. Without that one
// transport it works.
void spare_mpi_the_shared_memory() {
  struct statvfs shm {};
  const bool small =
      statvfs("/dev/shm", &shm) == 0 && shm.f_bavail * shm.f_bsize < kSharedMemoryOfMpi;
  if ((small || getpid() == 1) && std::getenv("UCX_TLS") == nullptr) setenv("UCX_TLS", "^posix", 1);
}

// hwloc, which MPI asks for the machine, stops the process on a list of NUMA nodes that is empty,
// as containers show it. Without its knowledge of Linux it only counts processors.
void spare_hwloc_an_empty_list() {
  const std::string nodes = "/sys/devices/system/node";
  if (access(nodes.c_str(), F_OK) == 0 && access((nodes + "/online").c_str(), F_OK) != 0)
    setenv("HWLOC_COMPONENTS", "-linux", 0);
}

class MpiBootstrap final : public Bootstrap {
 public:
  explicit MpiBootstrap(int ranks_per_host) {
    initialise();
    CHECK_MPI(MPI_Comm_rank(comm_, &rank_));
    CHECK_MPI(MPI_Comm_size(comm_, &size_));
    hosts_ = with_virtual_hosts(host_names(Bootstrap::all_gather(host_key())), ranks_per_host);
  }

  /// Ends MPI if this object began it, unless an exception is on its way: the peers may then never
  /// arrive, and a process that leaves without MPI_Finalize makes the launcher end them.
  ~MpiBootstrap() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0 || std::uncaught_exceptions() > 0) return;
    MPI_Comm_free(&comm_);
    if (owner_) MPI_Finalize();
  }

  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  void barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    CHECK_MPI(MPI_Ibarrier(comm_, &request));
    wait_politely(request);
  }
  double max_spinning(double mine) override {
    double most = 0;
    CHECK_MPI(MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, comm_));
    return most;
  }
  void send(Rank to, double value) override {
    MPI_Request request = MPI_REQUEST_NULL;
    CHECK_MPI(MPI_Isend(&value, 1, MPI_DOUBLE, to, 0, comm_, &request));
    wait_politely(request);
  }
  double receive(Rank from) override {
    double value = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    CHECK_MPI(MPI_Irecv(&value, 1, MPI_DOUBLE, from, 0, comm_, &request));
    wait_politely(request);
    return value;
  }
  /// Hydra is told on the line that it gave each rank: MPI_Abort from a second thread, while the
  /// first is inside the library, was seen to die of SIGABRT before it had told anybody.
  void abandon(int code) override {
    std::signal(SIGPIPE, SIG_IGN);  // the launcher may be gone
    if (!ask_hydra_to_end_all(code)) MPI_Abort(comm_, code);
  }
  std::string library() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    CHECK_MPI(MPI_Get_library_version(text.data(), &length));
    const std::string all(text.data(), static_cast<std::size_t>(length));
    return all.substr(0, all.find('\n'));
  }

  /// Short texts travel with their lengths, in one exchange; only longer ones need a second.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    Envelope envelope;
    envelope.length = static_cast<MPI_Count>(mine.size());
    if (mine.size() <= envelope.bytes.size()) std::ranges::copy(mine, envelope.bytes.begin());
    std::vector<Envelope> all(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    CHECK_MPI(MPI_Iallgather(&envelope, sizeof envelope, MPI_BYTE, all.data(), sizeof envelope,
                             MPI_BYTE, comm_, &request));
    wait_politely(request);
    const bool one_exchange = std::ranges::all_of(
        all, [](const Envelope& e) { return e.length <= static_cast<MPI_Count>(e.bytes.size()); });
    if (!one_exchange) return gather_long(mine, all);
    std::vector<std::vector<std::byte>> parts;
    for (const Envelope& e : all) parts.emplace_back(e.bytes.begin(), e.bytes.begin() + e.length);
    return parts;
  }

 private:
  struct Envelope {
    MPI_Count length = 0;
    std::array<std::byte, 56> bytes{};
  };

  std::vector<std::vector<std::byte>> gather_long(std::span<const std::byte> mine,
                                                  const std::vector<Envelope>& envelopes) const {
    std::vector<MPI_Count> lengths;
    std::vector<MPI_Aint> at{0};
    for (const Envelope& e : envelopes) {
      lengths.push_back(e.length);
      at.push_back(at.back() + static_cast<MPI_Aint>(e.length));
    }
    std::vector<std::byte> everything(static_cast<std::size_t>(at.back()));
    MPI_Request request = MPI_REQUEST_NULL;
    CHECK_MPI(MPI_Iallgatherv_c(mine.data(), static_cast<MPI_Count>(mine.size()), MPI_BYTE,
                                everything.data(), lengths.data(), at.data(), MPI_BYTE, comm_,
                                &request));
    wait_politely(request);
    std::vector<std::vector<std::byte>> parts;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      parts.emplace_back(everything.begin() + at[r], everything.begin() + at[r + 1]);
    }
    return parts;
  }

  void initialise() {
    int initialised = 0;
    MPI_Initialized(&initialised);
    if (initialised == 0) {
      int provided = 0;
      spare_mpi_the_shared_memory();
      spare_hwloc_an_empty_list();
      CHECK_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
      owner_ = true;
    }
    CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool owner_ = false;
  std::vector<std::string> hosts_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_mpi_bootstrap(int ranks_per_host) {
  return std::make_unique<MpiBootstrap>(ranks_per_host);
}

}  // namespace weft
