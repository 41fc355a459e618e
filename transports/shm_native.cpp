#include "transports/shm_native.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "patterns/error.hpp"
#include "transports/fabric.hpp"

namespace weft {
namespace {

/// Bytes of the last-level cache, read once in a process; where it is unknown, a usual size.
Bytes last_level_cache() {
  static const Bytes known = read_inventory().last_level_cache;
  return known > 0 ? known : Bytes{32} << 20;
}

}  // namespace

void fail_missing(const ShmPeers& peers, const WaitPolicy& policy, Rank peer, const char* missing,
                  const char* what) {
  fail(ExitCode::timed_out,
       fmt::format("rank {} on {} waited {:.1f} s for {} of rank {} on {} in {}; see whether that "
                   "rank lives, or raise --timeout",
                   peers.rank(), peers.host(peers.rank()), policy.timeout().count(), missing, peer,
                   peers.host(peer), what));
}

void Footprint::add(Bytes place, Bytes bytes) {
  if (bytes <= 0) return;
  Bytes begin = place, end = place + bytes;
  auto next = pieces_.upper_bound(begin);
  if (next != pieces_.begin() && std::prev(next)->second >= begin) --next;
  while (next != pieces_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    total_ -= next->second - next->first;
    next = pieces_.erase(next);
  }
  pieces_[begin] = end;
  total_ += end - begin;
}

ShmGroup::ShmGroup(const ShmContext& context, const NativeInput& input)
    : context_(context), others_((std::uint64_t{1} << (input.members.size() - 1)) - 1) {
  const auto board = [&](Rank rank) {
    return reinterpret_cast<Board*>(context.peers.flags(rank) + context.boards) + input.comm;
  };
  for (const NativeMember& member : input.members) {
    boards_.push_back(board(member.rank));
    ranks_.push_back(member.rank);
  }
  own_ = board(ranks_[static_cast<std::size_t>(input.me)]);
  const auto n = static_cast<int>(boards_.size());
  for (int i = 1; i < n; ++i) {
    const int member = (input.me + i) % n;
    order_.push_back({boards_[static_cast<std::size_t>(member)], member});
  }
}

void ShmGroup::fail_first(std::uint64_t pending, const char* missing, const char* what) const {
  const int member = order_[static_cast<std::size_t>(std::countr_zero(pending))].member;
  fail_missing(context_.peers, context_.policy, ranks_[static_cast<std::size_t>(member)], missing,
               what);
}

ShmNative::ShmNative(const ShmPeers& peers, Bytes boards, const WaitPolicy& policy,
                     const ShmSettings& settings)
    : context_{.peers = peers,
               .boards = boards,
               .policy = policy,
               .settings = settings,
               .cache = last_level_cache(),
               .footprint = {}} {}

bool ShmNative::offers(OperationKind kind) const {
  return kind != OperationKind::point_to_point || context_.settings.bare;
}

/// Without flags only one thing is right: the same collective, again and again.
void ShmNative::check_bare(const NativeInput& input) {
  const ScheduleInput& sizes = input.sizes;
  const bool point = sizes.kind == OperationKind::point_to_point;
  if (point || input.operation->run_time) {
    fail_usage(
        fmt::format("transport 'bare' has no flags and cannot do {} ({}); it is for sweeps "
                    "of one collective (--sizes)",
                    input.what, point ? "point-to-point" : "counts known at run time only"));
  }
  if (only_ && (only_->kind != sizes.kind || only_->counts != sizes.counts ||
                only_->matrix != sizes.matrix)) {
    fail_usage(
        fmt::format("transport 'bare' has no flags: it runs one collective again and again "
                    "(--sizes), and {} is a second one",
                    input.what));
  }
  if (!only_) only_ = std::make_unique<ScheduleInput>(sizes);
}

std::unique_ptr<NativeOperation> ShmNative::make(const NativeInput& input) {
  if (context_.settings.bare && !context_.settings.many) check_bare(input);
  ShmGroup* group = nullptr;
  if (input.members.size() > 1) {
    auto& known = groups_[input.comm];
    if (!known) known = std::make_unique<ShmGroup>(context_, input);
    group = known.get();
  }
  const Operation& operation = *input.operation;
  const NativeMember& own = input.members[static_cast<std::size_t>(input.me)];
  context_.footprint.add(own.in, operation.in.bytes());
  context_.footprint.add(own.out, operation.out.bytes());
  if (operation.run_time) return make_shm_run_time_pull(context_, group, input);
  const bool sums = operation.kind == OperationKind::all_reduce ||
                    operation.kind == OperationKind::reduce_scatter;
  return sums && group != nullptr ? make_shm_sum(context_, group, input)
                                  : make_shm_pull(context_, group, input);
}

}  // namespace weft
