#include "transports/scheduled_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "patterns/error.hpp"

namespace weft {
namespace {

/// What a receiver publishes to a sender before an exchange with run-time counts.
struct Destination {
  Bytes place = 0;  // in the receiver's arena
  Bytes bytes = 0;  // what it expects
};

/// A control area is one line per member for what this rank publishes, then one per member for what
/// it is told.
constexpr Bytes kLine = 64;
static_assert(run_time_control_bytes(1) == 2 * kLine && sizeof(Destination) <= kLine);

constexpr Bytes kCreditBytes = 8;  // one counter

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
  for (const Rank peer : key.ranks) {
    const bool near = world.hosts[at(peer)] == world.hosts[at(world.rank)];
    networks_.push_back(near ? Network::scale_up : Network::scale_out);
  }
}

// ---- prepare and commit
// ---------------------------------------------------------------------------------------------

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
    control_ =
        world_.arena.offset_of(world_.arena.take(run_time_control_bytes(size()), kLine).data());
    record.control = control_;
  }
  return record;
}

const Algorithm& ScheduledCommunicator::algorithm_for(const ScheduleInput& input,
                                                      DType dtype) const {
  if (!world_.native) return world_.algorithm;
  const std::string_view preferred = world_.transport.preferred_algorithm(input, dtype);
  return preferred.empty() ? world_.algorithm : find_algorithm(preferred);
}

std::unique_ptr<Schedule> ScheduledCommunicator::schedule_of(const Matched& matched) const {
  std::vector<int> hosts;
  for (const Rank rank : ranks()) hosts.push_back(world_.hosts[at(rank)]);
  const ScheduleInput input = schedule_input(matched, std::move(hosts));
  const Algorithm& algorithm = algorithm_for(input, matched.front()->dtype);
  const std::string why = algorithm.unsuitable(input);
  if (!why.empty()) {
    fail_usage(fmt::format("algorithm '{}' cannot do {} '{}' of the {}: {}", algorithm.name,
                           to_string(input.kind), matched.front()->label, to_string(key_), why));
  }
  return algorithm.make(input, rank());
}

Bytes ScheduledCommunicator::scratch_bytes(const GroupMatch& match) const {
  Bytes most = 0;
  for (std::size_t k = 0; k < match.collectives(); ++k) {
    const Matched matched = match.collective(k);
    const bool native = world_.native && world_.transport.offers_native(matched.front()->kind);
    if (native || matched.front()->row_elements > 0) continue;
    most =
        std::max(most, schedule_of(matched)->scratch_elements() * size_of(matched.front()->dtype));
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
  return make_plan(*schedule_of(matched), places, rank(), mine.dtype, world_.arena,
                   needs_credits(matched));
}

/// Whether any message can be longer than what the wire keeps: none is longer than all there is.
bool ScheduledCommunicator::needs_credits(const Matched& matched) const {
  const ScheduleInput input = schedule_input(matched, {});
  Index elements = std::accumulate(input.counts.begin(), input.counts.end(), Index{0});
  for (const auto& row : input.matrix)
    elements = std::max(elements, std::accumulate(row.begin(), row.end(), Index{0}));
  return elements * size_of(matched.front()->dtype) > world_.transport.uncredited_bytes();
}

OperationPlan ScheduledCommunicator::plan_points(const Operation& operation,
                                                 const GroupMatch& match, PointsSeen& seen) const {
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
    const Bytes remote = member.send ? match.receives(member.peer, rank())[k].place : 0;
    const GroupMatch::Leave leave = (member.send ? seen.out : seen.in)[peer][k];
    places.push_back({member.send, member.peer, record.place, remote, record.bytes, leave});
  }
  return make_point_plan(places);
}

ScheduledCommunicator::PointsSeen ScheduledCommunicator::points_of(const GroupMatch& match) const {
  PointsSeen seen{std::vector<std::size_t>(key_.ranks.size(), 0),
                  std::vector<std::size_t>(key_.ranks.size(), 0),
                  {},
                  {}};
  for (int peer = 0; peer < size(); ++peer) {
    seen.out.push_back(match.leaves(rank(), peer, world_.transport.uncredited_bytes()));
    seen.in.push_back(match.leaves(peer, rank(), world_.transport.uncredited_bytes()));
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
        is_point(op) ? plan_points(operation(op), match, seen)
                     : plan_collective(operation(op), match.collective(collective++), ranks);
    plan.what = what(operation(op));
    plans_.push_back(std::move(plan));
  }
}

// ---- run
// ------------------------------------------------------------------------------------------------------------

Channel ScheduledCommunicator::channel(int peer, std::uint16_t id) const {
  return {id_, id, key_.ranks[at(peer)]};
}

void ScheduledCommunicator::record_message(int peer, Bytes bytes, MessageKind kind,
                                           double posted_us, std::uint16_t piece) {
  if (!world_.recorder.enabled()) return;
  world_.recorder.append({.source = world_.rank,
                          .destination = key_.ranks[at(peer)],
                          .bytes = bytes,
                          .channel = piece,
                          .kind = kind,
                          .dim = key_.dim,
                          .network = networks_[at(peer)],
                          .posted_us = posted_us,
                          .completed_us = message_time_us()});
}

double ScheduledCommunicator::post_time_us() const {
  return world_.recorder.enabled() ? message_time_us() : 0;
}

void ScheduledCommunicator::give_credit(int peer) {
  const double posted = post_time_us();
  world_.transport.signal(channel(peer, kCreditChannel));
  record_message(peer, kCreditBytes, MessageKind::control, posted);
}

void ScheduledCommunicator::take_credit(int peer, const char* what) {
  world_.transport.wait(channel(peer, kCreditChannel), ++credits_[at(peer)], what);
}

void ScheduledCommunicator::send(int peer, Bytes from, Bytes to, Bytes n, bool credited) {
  const double posted = post_time_us();
  for (const PostedPart& piece :
       world_.transport.send(channel(peer, kDataChannel), from, to, n, credited)) {
    record_message(peer, piece.bytes, MessageKind::payload, posted, piece.channel);
  }
}

void ScheduledCommunicator::await(int peer, std::uint64_t messages, const char* what) {
  messages_[at(peer)] += messages;
  world_.transport.wait(channel(peer, kDataChannel), messages_[at(peer)], what);
}

void ScheduledCommunicator::execute(const OperationPlan& plan, const PlanStep& step) {
  switch (step.kind) {
    case PlanStep::Kind::give_credit:
      return give_credit(step.peer);
    case PlanStep::Kind::take_credit:
      return take_credit(step.peer, plan.what.c_str());
    case PlanStep::Kind::put:
    case PlanStep::Kind::send:
      return send(step.peer, step.a, step.b, step.n, step.kind == PlanStep::Kind::put);
    case PlanStep::Kind::await:
      return await(step.peer, static_cast<std::uint64_t>(step.n), plan.what.c_str());
    case PlanStep::Kind::copy:
      std::memcpy(step.to, plan.sources[static_cast<std::size_t>(step.a)],
                  static_cast<std::size_t>(step.n));
      return;
    case PlanStep::Kind::reduce:
      return reduce_sum(step.to, plan.sources.data() + step.a, static_cast<int>(step.b), step.n,
                        plan.dtype);
  }
}

void ScheduledCommunicator::execute(const OperationPlan& plan) {
  for (step_ = 0; step_ < plan.steps.size(); ++step_) execute(plan, plan.steps[step_]);
}

/// Tells `peer` where its rows shall go, together with the credit.
void ScheduledCommunicator::publish_destination(int peer, const Operation& operation) {
  const Bytes element = size_of(operation.dtype);
  const Destination mine{
      world_.arena.offset_of(operation.out.data) + counts_.recv_at[at(peer)] * element,
      counts_.recv[at(peer)] * element};
  const Bytes published = control_ + peer * kLine;
  const Bytes told = peer_control_[at(peer)] + (size() + rank()) * kLine;
  std::memcpy(world_.arena.data() + published, &mine, sizeof mine);
  const double posted = post_time_us();
  world_.transport.put(channel(peer, kCreditChannel), published, told, sizeof mine);
  record_message(peer, sizeof mine, MessageKind::control, posted);
  give_credit(peer);
}

void ScheduledCommunicator::send_run_time(int peer, const Operation& operation, const char* what) {
  take_credit(peer, what);
  Destination theirs;
  std::memcpy(&theirs, world_.arena.data() + control_ + (size() + peer) * kLine, sizeof theirs);
  const Bytes element = size_of(operation.dtype);
  const Bytes bytes = counts_.send[at(peer)] * element;
  if (bytes != theirs.bytes) {
    const Bytes row = operation.run_time->row_elements * element;
    fail(ExitCode::failed,
         fmt::format("{}: rank {} has {} rows for rank {}, which expects {}; look at the exchange "
                     "of counts before it",
                     what, world_.rank, bytes / row, key_.ranks[at(peer)], theirs.bytes / row));
  }
  send(peer, world_.arena.offset_of(operation.in.data) + counts_.send_at[at(peer)] * element,
       theirs.place, bytes, true);
}

/// The direct form, whatever the session's algorithm: counts that only the two ends know leave
/// nothing to forward. Every pair signals, also for no rows, so that no published destination is
/// overwritten before it was read.
void ScheduledCommunicator::execute_run_time(const Operation& operation, const char* what) {
  counts_.resolve(operation, rank());
  const auto peer = [this](int i) { return (rank() + i) % size(); };
  for (int i = size() - 1; i > 0; --i) publish_destination(peer(i), operation);
  const Bytes element = size_of(operation.dtype);
  if (const Index own = counts_.send[at(rank())]; own > 0) {
    std::memcpy(operation.out.data + counts_.recv_at[at(rank())] * element,
                operation.in.data + counts_.send_at[at(rank())] * element,
                static_cast<std::size_t>(own * element));
  }
  for (int i = 1; i < size(); ++i) send_run_time(peer(i), operation, what);
  for (int i = size() - 1; i > 0; --i) await(peer(i), 1, what);
}

void ScheduledCommunicator::fail_in(const OperationPlan& plan, const Error& error) const {
  if (error.code() != ExitCode::timed_out || step_ >= plan.steps.size()) throw error;
  fail(error.code(),
       fmt::format("{} (round {} of {}, step {} of {})", error.what(), plan.steps[step_].round + 1,
                   plan.rounds, step_ + 1, plan.steps.size()));
}

void ScheduledCommunicator::do_run(OperationId id, Stream&) {
  if (static_cast<std::size_t>(id) >= plans_.size()) {
    fail_usage(fmt::format("{} '{}' runs before commit()", to_string(operation(id).kind),
                           operation(id).label));
  }
  const OperationPlan& plan = plans_[static_cast<std::size_t>(id)];
  try {
    if (plan.native) return plan.native->run();
    plan.run_time ? execute_run_time(operation(id), plan.what.c_str()) : execute(plan);
    world_.transport.flush();
  } catch (const Error& error) {
    fail_in(plan, error);
  }
}

}  // namespace weft
