// How ranks find each other: rank, size, hosts, and small exchanges outside the datapath. Over MPI
// in programs; over threads of one process in tests.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "patterns/types.hpp"

namespace weft {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  /// Everyone's bytes, by rank; lengths may differ. Collective.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) = 0;
  virtual void barrier() = 0;
  /// Largest of all ranks' numbers, for ranks that have cores of their own: waits without giving
  /// the core away, so that what is timed next finds it as a loop of nothing else would (a system
  /// call in between costs the next small operation 0.1 to 0.2 us). Collective.
  virtual double max_spinning(double mine) { return max(mine); }
  /// One number to one rank, in order per pair; only the two take part. For ping-pong.
  virtual void send(Rank to, double value) = 0;
  virtual double receive(Rank from) = 0;
  /// Host name of every rank (real hosts, or virtual ones "name/v0" under --ranks-per-host).
  virtual const std::vector<std::string>& hosts() const = 0;
  /// True where ranks are threads of one process (tests).
  virtual bool in_process() const { return false; }
  /// Asks the launcher to end all ranks with this exit code; for any thread, also while another is
  /// in a call. May return before they end, or never.
  virtual void abandon(int) {}
  /// Name and version of the library behind it, for the provenance; empty where there is none.
  virtual std::string library() const { return {}; }

  // Conveniences over all_gather.
  std::vector<double> all_gather(double mine);
  double max(double mine);
  double sum(double mine);
  bool all(bool mine);
  std::vector<std::string> all_gather(const std::string& mine);
  /// Index of the host of each rank, in order of first appearance; ranks of one host need not be
  /// neighbours.
  std::vector<int> host_indices() const;
  int host_count() const;
  int local_rank() const;  // index among the ranks of this host
  int local_size() const;
  /// The lowest rank of each real host, in order of first appearance: rank 0 comes first.
  std::vector<Rank> host_leaders() const;
};

/// Over MPI_COMM_WORLD; MPI is initialised (SERIALIZED). `ranks_per_host` > 0 makes virtual hosts
/// of that many consecutive ranks (of one real host).
std::unique_ptr<Bootstrap> make_mpi_bootstrap(int ranks_per_host = 0);

/// n bootstraps for n threads of this process, host "thread-host" (or virtual hosts).
std::vector<std::unique_ptr<Bootstrap>> make_thread_bootstraps(int n, int ranks_per_host = 0);

}  // namespace weft
