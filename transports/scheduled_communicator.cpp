#include "transports/scheduled_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "patterns/error.hpp"

namespace weft {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

ScheduledCommunicator::ScheduledCommunicator(const ScheduledWorld& world, const CommKey& key)
    : Communicator(key.ranks,
                   static_cast<int>(std::find(key.ranks.begin(), key.ranks.end(), world.rank) -
                                    key.ranks.begin()),
                   key.dim),
      world_(world),
      key_(key),
      messages_(key.ranks.size(), 0),
      credits_(key.ranks.size(), 0),
      peer_control_(key.ranks.size(), -1),
      counts_(static_cast<int>(key.ranks.size())) {
  expected_.reserve(key.ranks.size());
  leaves_.reserve(key.ranks.size());
  for (const Rank peer : key.ranks) {
    const bool near = world.hosts[at(peer)] == world.hosts[at(world.rank)];
    networks_.push_back(near ? Network::scale_up : Network::scale_out);
  }
}

std::string ScheduledCommunicator::what(const Operation& operation) const {
  return fmt::format("{} '{}' of the {}", to_string(operation.kind), operation.label,
                     to_string(key_));
}

Bytes ScheduledCommunicator::place_of(const BoundView& view, const Operation& operation) const {
  if (view.data == nullptr || view.elements() == 0) return -1;
  const Bytes place = world_.arena.offset_of(view.data);
  if (place < 0 || place + view.bytes() > world_.arena.size()) {
    fail_usage(fmt::format("{} '{}': a buffer of {} bytes lies outside the arena of this session",
                           to_string(operation.kind), operation.label, view.bytes()));
  }
  return place;
}

void ScheduledCommunicator::do_prepare(OperationId, const Operation& operation) {
  place_of(operation.in, operation);
  place_of(operation.out, operation);
  for (const PointToPoint& member : operation.members) place_of(member.data, operation);
}

PointRecord ScheduledCommunicator::record_of(const PointToPoint& member) const {
  return {member.send, member.peer, world_.arena.offset_of(member.data.data), member.data.bytes()};
}

OperationRecord ScheduledCommunicator::record_of(const Operation& operation) const {
  const bool same_size =
      operation.kind == OperationKind::all_reduce || operation.kind == OperationKind::broadcast;
  OperationRecord record{.kind = operation.kind,
                         .dtype = operation.dtype,
                         .root = operation.root,
                         .in = place_of(operation.in, operation),
                         .out = place_of(operation.out, operation),
                         .elements = same_size ? operation.out.elements() : 0,
                         .row_elements = operation.run_time ? operation.run_time->row_elements : 0,
                         .counts = operation.counts,
                         .recv_counts = operation.recv_counts,
                         .members = {},
                         .label = operation.label};
  for (const PointToPoint& member : operation.members) record.members.push_back(record_of(member));
  return record;
}

CommRecord ScheduledCommunicator::record() {
  CommRecord record{.dim = key_.dim, .ranks = key_.ranks, .control = control_, .operations = {}};
  for (auto id = plans_.size(); id < prepared(); ++id) {
    const Operation& fresh = operation(static_cast<OperationId>(id));
    record.operations.push_back(record_of(fresh));
    if (!fresh.run_time || control_ >= 0) continue;
    control_ = world_.arena.offset_of(
        world_.arena.take(run_time_control_bytes(size()), kControlLine).data());
    record.control = control_;
  }
  return record;
}

ScheduleInput ScheduledCommunicator::input_of(const Matched& matched) const {
  std::vector<int> hosts;
  for (const Rank rank : ranks()) hosts.push_back(world_.hosts[at(rank)]);
  return schedule_input(matched, std::move(hosts));
}

const Algorithm& ScheduledCommunicator::algorithm_for(const Matched& matched,
                                                      const ScheduleInput& input) const {
  std::string_view preferred;
  if (world_.native) preferred = world_.transport.preferred_algorithm(input, matched[0]->dtype);
  const Algorithm& algorithm = preferred.empty() ? world_.algorithm : find_algorithm(preferred);
  const std::string why = algorithm.unsuitable(input);
  if (!why.empty()) {
    fail_usage(fmt::format("algorithm '{}' cannot do {} '{}' of the {}: {}", algorithm.name,
                           to_string(input.kind), matched.front()->label, to_string(key_), why));
  }
  return algorithm;
}

Bytes ScheduledCommunicator::scratch_bytes(const GroupMatch& match) const {
  Bytes most = 0;
  for (std::size_t k = 0; k < match.collectives(); ++k) {
    const Matched matched = match.collective(k);
    const bool native = world_.native && world_.transport.offers_native(matched.front()->kind);
    if (native || matched.front()->row_elements > 0) continue;
    const ScheduleInput input = input_of(matched);
    const auto schedule = algorithm_for(matched, input).make(input, rank());
    most = std::max(most, schedule->scratch_elements() * size_of(matched.front()->dtype));
  }
  return most;
}

NativeInput ScheduledCommunicator::native_input(const Operation& operation,
                                                const Matched& matched) const {
  NativeInput input{.comm = id_,
                    .me = rank(),
                    .dim = key_.dim,
                    .dtype = operation.dtype,
                    .members = {},
                    .sizes = {.kind = operation.kind, .size = size()},
                    .operation = &operation,
                    .what = what(operation),
                    .recorder = &world_.recorder};
  for (std::size_t m = 0; m < key_.ranks.size(); ++m) {
    input.members.push_back({.rank = key_.ranks[m], .network = networks_[m]});
    if (matched.empty()) continue;
    input.members[m].in = matched[m]->in;
    input.members[m].out = matched[m]->out;
  }
  if (!matched.empty() && !operation.run_time) input.sizes = schedule_input(matched, {});
  return input;
}

OperationPlan ScheduledCommunicator::plan_collective(const Operation& operation,
                                                     const Matched& matched,
                                                     const std::vector<RankRecord>& ranks) const {
  const OperationRecord& mine = *matched[at(rank())];
  if (world_.native && world_.transport.offers_native(mine.kind)) {
    OperationPlan plan;
    plan.native = world_.transport.native(native_input(operation, matched));
    return plan;
  }
  if (mine.row_elements > 0) {
    OperationPlan plan;
    plan.run_time = true;
    plan.rounds = 1;
    return plan;
  }
  std::vector<Places> places;
  for (std::size_t m = 0; m < matched.size(); ++m) {
    places.push_back({matched[m]->in, matched[m]->out, ranks[at(key_.ranks[m])].scratch});
  }
  const ScheduleInput input = input_of(matched);
  const Algorithm& algorithm = algorithm_for(matched, input);
  PlanSetting setting{places, rank(), mine.dtype, world_.arena, needs_credits(matched)};
  if (algorithm.fetched)
    setting.fetched_from = [&](int member) { return algorithm.make(input, member); };
  return make_plan(*algorithm.make(input, rank()), setting);
}

/// Whether any message can be longer than what the wire keeps: none is longer than all there is.
bool ScheduledCommunicator::needs_credits(const Matched& matched) const {
  const ScheduleInput input = schedule_input(matched, {});
  Index elements = std::accumulate(input.counts.begin(), input.counts.end(), Index{0});
  for (const auto& row : input.matrix)
    elements = std::max(elements, std::accumulate(row.begin(), row.end(), Index{0}));
  return elements * size_of(matched.front()->dtype) > world_.transport.uncredited_bytes();
}

void ScheduledCommunicator::prepare_sends(OperationPlan& plan) const {
  using Kind = PlanStep::Kind;
  const auto sends = [](const PlanStep& step) {
    return step.kind == Kind::put || step.kind == Kind::send;
  };
  plan.flush = plan.run_time;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    PlanStep& step = plan.steps[i];
    if (sends(step)) {
      const bool last = i + 1 == plan.steps.size() || !sends(plan.steps[i + 1]);
      plan.sends.push_back(world_.transport.send_init(
          channel(step.peer, kDataChannel), step.a, step.b, step.n, step.kind == Kind::put, last));
      step.message = plan.sends.back().get();
      plan.flush |= step.message->needs_flush();
    } else {
      const bool local = step.kind == Kind::copy || step.kind == Kind::reduce;
      plan.flush |= !local && step.kind != Kind::await && step.kind != Kind::post;
    }
  }
}

OperationPlan ScheduledCommunicator::plan_points(const Operation& operation,
                                                 PointsSeen& seen) const {
  if (world_.native && world_.transport.offers_native(OperationKind::point_to_point)) {
    OperationPlan plan;
    plan.native = world_.transport.native(native_input(operation, {}));
    return plan;
  }
  std::vector<PointPlace> places;
  for (const PointToPoint& member : operation.members) {
    const PointRecord record = record_of(member);
    const std::size_t peer = at(member.peer);
    const std::size_t k = (member.send ? seen.sent : seen.received)[peer]++;
    const Bytes remote = member.send ? seen.targets[peer][k].place : 0;
    const GroupMatch::Leave leave = (member.send ? seen.out : seen.in)[peer][k];
    places.push_back({member.send, member.peer, record.place, remote, record.bytes, leave});
  }
  return make_point_plan(places, operation.in_order);
}

ScheduledCommunicator::PointsSeen ScheduledCommunicator::points_of(const GroupMatch& match) const {
  PointsSeen seen{std::vector<std::size_t>(key_.ranks.size(), 0),
                  std::vector<std::size_t>(key_.ranks.size(), 0),
                  {},
                  {},
                  {}};
  for (int peer = 0; peer < size(); ++peer) {
    seen.out.push_back(match.leaves(rank(), peer, world_.transport.uncredited_bytes()));
    seen.in.push_back(match.leaves(peer, rank(), world_.transport.uncredited_bytes()));
    seen.targets.push_back(match.receives(peer, rank()));
  }
  return seen;
}

void ScheduledCommunicator::bind(const GroupMatch& match, const std::vector<RankRecord>& ranks,
                                 CommId id) {
  id_ = id;
  for (int peer = 0; peer < size(); ++peer) peer_control_[at(peer)] = match.control(peer);
  std::size_t collective = 0;
  PointsSeen seen = points_of(match);
  while (plans_.size() < prepared()) {
    const auto op = static_cast<OperationId>(plans_.size());
    OperationPlan plan =
        is_point(op) ? plan_points(operation(op), seen)
                     : plan_collective(operation(op), match.collective(collective++), ranks);
    plan.what = what(operation(op));
    prepare_sends(plan);
    plans_.push_back(std::move(plan));
  }
}

}  // namespace weft
