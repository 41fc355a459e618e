#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "patterns/error.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/mpi_types.hpp"
#include "transports/mpi_wait.hpp"
#include "transports/run_time_counts.hpp"
#include "transports/touch.hpp"
#include "transports/transport.hpp"

namespace weft {
namespace {

using Counts = std::vector<MPI_Count>;
using Places = std::vector<MPI_Aint>;

/// Counts and displacements of one operation, in the types that MPI's large-count functions want.
struct MpiOperation {
  Counts counts, recv_counts;
  Places places, recv_places;
  bool even = false;                  // all counts equal
  std::vector<MPI_Request> requests;  // point to point
};

Places places_of(const Counts& counts) {
  Places places(counts.size(), 0);
  for (std::size_t i = 1; i < counts.size(); ++i) {
    places[i] = places[i - 1] + static_cast<MPI_Aint>(counts[i - 1]);
  }
  return places;
}

using MpiKey = std::pair<Dimension, std::vector<Rank>>;

class MpiCommunicator final : public Communicator {
 public:
  /// `oversubscribed`: more ranks than cores wait for each other.
  MpiCommunicator(const MpiKey& key, int rank, const MpiTypes& types, bool oversubscribed)
      : Communicator(key.second, rank, key.first),
        types_(types),
        oversubscribed_(oversubscribed),
        exchange_(size()) {}

  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }

  /// Collective over the members, who all do it in the order of the keys.
  void connect() {
    if (comm_ != MPI_COMM_NULL) return;
    MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    CHECK_MPI(MPI_Group_incl(world, size(), ranks().data(), &members));
    CHECK_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, members, 0, &comm_));
    CHECK_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    MPI_Group_free(&members);
    MPI_Group_free(&world);
  }

 private:
  void do_prepare(OperationId, const Operation& operation) override {
    MpiOperation op;
    op.counts.assign(operation.counts.begin(), operation.counts.end());
    op.recv_counts.assign(operation.recv_counts.begin(), operation.recv_counts.end());
    if (operation.run_time) op.counts.resize(ranks().size());
    if (operation.run_time) op.recv_counts.resize(ranks().size());
    op.places = places_of(op.counts);
    op.recv_places = places_of(op.recv_counts);
    op.even =
        std::equal(op.counts.begin() + !op.counts.empty(), op.counts.end(), op.counts.begin());
    op.requests.resize(operation.members.size(), MPI_REQUEST_NULL);
    prepared_.push_back(std::move(op));
  }

  void do_run(OperationId id, Stream&) override {
    if (comm_ == MPI_COMM_NULL) {
      fail_usage(fmt::format("{} '{}' runs before commit()", to_string(operation(id).kind),
                             operation(id).label));
    }
    const Operation& op = operation(id);
    MpiOperation& mine = prepared_[static_cast<std::size_t>(id)];
    switch (op.kind) {
      case OperationKind::all_gather:
        return all_gather(op, mine);
      case OperationKind::all_reduce:
        return all_reduce(op);
      case OperationKind::reduce_scatter:
        return reduce_scatter(op, mine);
      case OperationKind::broadcast:
        return broadcast(op);
      case OperationKind::all_to_all_v:
        return all_to_all_v(op, mine);
      case OperationKind::point_to_point:
        return point_to_point(op, mine);
    }
  }

  void do_touch(OperationId id) const override {
    const MpiOperation& op = prepared_[static_cast<std::size_t>(id)];
    weft::touch(&op, sizeof op);
    touch_all(op.counts);
    touch_all(op.recv_counts);
    touch_all(op.places);
    touch_all(op.recv_places);
    touch_all(op.requests);
  }

  /// As a user of MPI would: by the blocking function. Where ranks share cores by the nonblocking
  /// one, since they would spin each other away (a time slice of milliseconds a message).
  template <class Blocking, class Nonblocking, class... Arguments>
  void collective(const char* name, Blocking blocking, Nonblocking nonblocking,
                  Arguments... arguments) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = oversubscribed_ ? nonblocking(arguments..., comm_, &request)
                                     : blocking(arguments..., comm_);
    if (code != MPI_SUCCESS) fail_mpi(code, name);
    if (oversubscribed_) wait_politely(request);
  }

  void wait(std::span<MPI_Request> requests) {
    if (oversubscribed_) return wait_politely(requests);
    CHECK_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
  }

  // Equal counts take the plain functions: libraries tune those.

  void all_gather(const Operation& op, const MpiOperation& mine) {
    const MPI_Datatype type = types_.data(op.dtype);
    const auto me = static_cast<std::size_t>(rank());
    const bool in_place = op.in.data == op.out.data + mine.places[me] * size_of(op.dtype);
    const void* from = in_place ? MPI_IN_PLACE : op.in.data;
    if (mine.even) {
      collective("MPI_Allgather", MPI_Allgather_c, MPI_Iallgather_c, from, mine.counts[0], type,
                 op.out.data, mine.counts[0], type);
    } else {
      collective("MPI_Allgatherv", MPI_Allgatherv_c, MPI_Iallgatherv_c, from, mine.counts[me], type,
                 op.out.data, mine.counts.data(), mine.places.data(), type);
    }
  }

  void all_reduce(const Operation& op) {
    collective("MPI_Allreduce", MPI_Allreduce_c, MPI_Iallreduce_c, op.in.data, op.out.data,
               op.out.elements(), types_.data(op.dtype), types_.sum(op.dtype));
  }

  void reduce_scatter(const Operation& op, const MpiOperation& mine) {
    const MPI_Datatype type = types_.data(op.dtype);
    if (mine.even) {
      collective("MPI_Reduce_scatter_block", MPI_Reduce_scatter_block_c,
                 MPI_Ireduce_scatter_block_c, op.in.data, op.out.data, mine.counts[0], type,
                 types_.sum(op.dtype));
    } else {
      collective("MPI_Reduce_scatter", MPI_Reduce_scatter_c, MPI_Ireduce_scatter_c, op.in.data,
                 op.out.data, mine.counts.data(), type, types_.sum(op.dtype));
    }
  }

  void broadcast(const Operation& op) {
    if (rank() == op.root && op.in.data != op.out.data && op.out.bytes() > 0) {
      std::memcpy(op.out.data, op.in.data, static_cast<std::size_t>(op.out.bytes()));
    }
    collective("MPI_Bcast", MPI_Bcast_c, MPI_Ibcast_c, op.out.data, op.out.elements(),
               types_.data(op.dtype), op.root);
  }

  void all_to_all_v(const Operation& op, MpiOperation& mine) {
    if (op.run_time) {
      exchange_.resolve(op, rank());
      std::copy(exchange_.send.begin(), exchange_.send.end(), mine.counts.begin());
      std::copy(exchange_.send_at.begin(), exchange_.send_at.end(), mine.places.begin());
      std::copy(exchange_.recv.begin(), exchange_.recv.end(), mine.recv_counts.begin());
      std::copy(exchange_.recv_at.begin(), exchange_.recv_at.end(), mine.recv_places.begin());
    }
    const MPI_Datatype type = types_.data(op.dtype);
    collective("MPI_Alltoallv", MPI_Alltoallv_c, MPI_Ialltoallv_c, op.in.data, mine.counts.data(),
               mine.places.data(), type, op.out.data, mine.recv_counts.data(),
               mine.recv_places.data(), type);
  }

  // Receives first, so that messages find their buffers.
  void point_to_point(const Operation& op, MpiOperation& mine) {
    const auto start = [&](std::size_t i) {
      const PointToPoint& m = op.members[i];
      const auto call = m.send ? isend : irecv;
      CHECK_MPI(call(m.data.data, m.data.bytes(), m.peer, comm_, &mine.requests[i]));
    };
    for (std::size_t i = 0; i < op.members.size(); ++i) {
      if (!op.members[i].send) start(i);
    }
    for (std::size_t i = 0; i < op.members.size(); ++i) {
      if (op.members[i].send) {
        start(i);
      } else if (op.in_order) {
        wait({&mine.requests[i], 1});
      }
    }
    wait(mine.requests);
  }

  static int isend(std::byte* data, Bytes n, Rank to, MPI_Comm comm, MPI_Request* request) {
    return MPI_Isend_c(data, n, MPI_BYTE, to, 0, comm, request);
  }
  static int irecv(std::byte* data, Bytes n, Rank from, MPI_Comm comm, MPI_Request* request) {
    return MPI_Irecv_c(data, n, MPI_BYTE, from, 0, comm, request);
  }

  const MpiTypes& types_;
  bool oversubscribed_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<MpiOperation> prepared_;
  ExchangeCounts exchange_;
};

class MpiSession final : public Session {
 public:
  MpiSession(Bootstrap& bootstrap, bool oversubscribed)
      : bootstrap_(bootstrap), oversubscribed_(oversubscribed), recorder_(0) {}

  Communicator& communicator(const Group& group) override {
    const MpiKey key{group.dim, group.ranks.members()};
    if (const auto found = comms_.find(key); found != comms_.end()) return *found->second;
    const int rank = group.ranks.index_of(bootstrap_.rank());
    if (rank < 0) {
      fail_usage(fmt::format("rank {} is no member of this {} group", bootstrap_.rank(),
                             to_string(group.dim)));
    }
    return *comms_
                .emplace(key, std::make_unique<MpiCommunicator>(key, rank, types_, oversubscribed_))
                .first->second;
  }

  void commit() override {
    together(bootstrap_,
             [] {});  // nobody is left alone in MPI_Comm_create_group by a rank that failed before
    for (auto& [key, comm] : comms_) comm->connect();
  }

  FlowRecorder& recorder() override { return recorder_; }
  std::string_view flow_source() const override { return {}; }

 private:
  Bootstrap& bootstrap_;
  bool oversubscribed_;
  FlowRecorder recorder_;
  MpiTypes types_;
  std::map<MpiKey, std::unique_ptr<MpiCommunicator>> comms_;
};

}  // namespace

std::string mpi_unavailable(Bootstrap& bootstrap) {
  if (bootstrap.in_process())
    return "ranks are threads of one process; MPI needs a process for each";
  int initialised = 0, provided = 0, size = 0;
  MPI_Initialized(&initialised);
  if (initialised == 0) return "MPI is not initialised";
  MPI_Query_thread(&provided);
  if (provided < MPI_THREAD_SERIALIZED) return "this MPI does not give MPI_THREAD_SERIALIZED";
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != bootstrap.size()) {
    return fmt::format("MPI found {} ranks, the bootstrap {}; start all of them with one mpiexec",
                       size, bootstrap.size());
  }
  return {};
}

std::unique_ptr<Session> make_mpi_session(Bootstrap& bootstrap, Arena&,
                                          const SessionOptions& options) {
  const std::string why = mpi_unavailable(bootstrap);
  if (!why.empty()) fail_usage("transport 'mpi' is not available here: " + why);
  if (!options.algorithm.empty() && options.algorithm != "default") {
    fail_usage(fmt::format("transport 'mpi' has one algorithm, 'default' (MPI chooses), not '{}'",
                           options.algorithm));
  }
  return std::make_unique<MpiSession>(bootstrap, options.oversubscribed);
}

}  // namespace weft
