#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "patterns/error.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/scheduled_communicator.hpp"

namespace weft {
namespace {

constexpr Bytes kScratchAlignment = 256;

bool is_native(const SessionOptions& options) {
  return options.algorithm.empty() || options.algorithm == kNativeAlgorithm;
}

class ScheduledSession final : public Session {
 public:
  ScheduledSession(Bootstrap& bootstrap, Arena& arena, std::unique_ptr<Transport> transport,
                   const SessionOptions& options)
      : bootstrap_(bootstrap),
        arena_(arena),
        transport_(std::move(transport)),
        world_{arena,
               *transport_,
               recorder_,
               is_native(options) ? algorithms().front() : find_algorithm(options.algorithm),
               is_native(options),
               bootstrap.rank(),
               bootstrap.host_indices()} {}

  Communicator& communicator(const Group& group) override {
    const CommKey key{group.dim, group.ranks.members()};
    if (const auto found = comms_.find(key); found != comms_.end()) return *found->second;
    if (group.ranks.index_of(world_.rank) < 0) {
      fail_usage(fmt::format("rank {} is no member of the {}", world_.rank, to_string(key)));
    }
    return *comms_.emplace(key, std::make_unique<ScheduledCommunicator>(world_, key)).first->second;
  }

  /// Errors of one rank are told to all, so that all of them throw and nobody waits for a rank that
  /// has left.
  void commit() override {
    std::vector<RankRecord> records;
    for (const auto& bytes : bootstrap_.all_gather(pack(record())))
      records.push_back(unpack(bytes));
    for (const RankRecord& record : records) throw_error_record(record.error);
    together(bootstrap_, [&] { bind(records); });
    transport_->commit(arena_.used(), peers());
  }

  FlowRecorder& recorder() override { return recorder_; }
  std::string_view flow_source() const override { return "recorded"; }
  std::vector<QueuePairFacts> queue_pairs() const override { return transport_->queue_pairs(); }

 private:
  RankRecord record() {
    RankRecord record;
    record.error = error_record([&] {
      for (auto& [key, comm] : comms_) record.comms.push_back(comm->record());
    });
    // The place is told before the size is known, which depends on the other ranks' counts.
    record.scratch =
        (arena_.used() + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    return record;
  }

  std::vector<Rank> peers() const {
    std::set<Rank> found;
    for (const auto& [key, comm] : comms_) found.insert(key.ranks.begin(), key.ranks.end());
    found.erase(world_.rank);
    return {found.begin(), found.end()};
  }

  void bind(const std::vector<RankRecord>& records) {
    const auto groups = match_groups(records);
    for (const auto& [key, group] : groups) group.check();
    assign_ids(groups, transport_->max_comms(), ids_);
    Bytes scratch = 0;
    for (auto& [key, comm] : comms_)
      scratch = std::max(scratch, comm->scratch_bytes(groups.at(key)));
    take_scratch(scratch, records[static_cast<std::size_t>(world_.rank)].scratch);
    for (auto& [key, comm] : comms_) comm->bind(groups.at(key), records, ids_.at(key));
  }

  void take_scratch(Bytes bytes, Bytes promised) {
    if (bytes == 0) return;
    if (arena_.size() - promised < bytes) {
      fail_usage(fmt::format(
          "algorithm '{}' needs {} bytes of scratch, the arena of rank {} has {} left; give it "
          "a larger arena or choose another algorithm",
          world_.algorithm.name, bytes, world_.rank, std::max<Bytes>(0, arena_.size() - promised)));
    }
    const Bytes place = arena_.offset_of(arena_.take(bytes, kScratchAlignment).data());
    if (place != promised) {
      fail(ExitCode::failed,
           fmt::format("scratch lies at {} of the arena, not at {} as told to the peers", place,
                       promised));
    }
  }

  Bootstrap& bootstrap_;
  Arena& arena_;
  std::unique_ptr<Transport> transport_;
  FlowRecorder recorder_;
  ScheduledWorld world_;
  std::map<CommKey, std::unique_ptr<ScheduledCommunicator>> comms_;
  std::map<CommKey, CommId> ids_;
};

}  // namespace

std::unique_ptr<Session> make_scheduled_session(Bootstrap& bootstrap, Arena& arena,
                                                std::unique_ptr<Transport> transport,
                                                const SessionOptions& options) {
  return std::make_unique<ScheduledSession>(bootstrap, arena, std::move(transport), options);
}

}  // namespace weft
