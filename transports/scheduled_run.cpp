// What a rank does in run(): it walks a plan, or exchanges what only run-time counts tell.
#include <fmt/format.h>

#include <cstring>

#include "kernels/backend.hpp"
#include "patterns/error.hpp"
#include "transports/scheduled_communicator.hpp"
#include "transports/touch.hpp"

namespace weft {
namespace {

/// What a receiver publishes to a sender before an exchange with run-time counts.
struct Destination {
  Bytes place = 0;  // in the receiver's arena
  Bytes bytes = 0;  // what it expects
};
static_assert(sizeof(Destination) <= kControlLine);

constexpr Bytes kSignalBytes = 8;  // one counter

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

Channel ScheduledCommunicator::channel(int peer, std::uint16_t id) const {
  return {id_, id, key_.ranks[at(peer)]};
}

void ScheduledCommunicator::record_message(int from, int to, const PostedPart& part,
                                           MessageKind kind, double posted_us) {
  if (!world_.recorder.enabled()) return;
  world_.recorder.append({.source = key_.ranks[at(from)],
                          .destination = key_.ranks[at(to)],
                          .bytes = part.bytes,
                          .channel = part.channel,
                          .kind = kind,
                          .dim = key_.dim,
                          .network = networks_[at(from == rank() ? to : from)],
                          .posted_us = posted_us,
                          .completed_us = message_time_us()});
}

double ScheduledCommunicator::post_time_us() const {
  return world_.recorder.enabled() ? message_time_us() : 0;
}

void ScheduledCommunicator::tell(int peer, std::uint16_t id) {
  const double posted = post_time_us();
  world_.transport.signal(channel(peer, id));
  record_message(rank(), peer, {0, kSignalBytes}, MessageKind::control, posted);
}

void ScheduledCommunicator::take_credit(int peer, const char* what) {
  world_.transport.wait(channel(peer, kCreditChannel), ++credits_[at(peer)], what);
}

void ScheduledCommunicator::start_recorded(const PlanStep& step) {
  const double posted = message_time_us();
  record_parts(step.peer, step.message->start(), posted);
}

void ScheduledCommunicator::send(int peer, Bytes from, Bytes to, Bytes n) {
  const double posted = post_time_us();
  record_parts(peer, world_.transport.send(channel(peer, kDataChannel), from, to, n, true), posted);
}

void ScheduledCommunicator::record_parts(int peer, std::span<const PostedPart> parts,
                                         double posted_us) {
  for (const PostedPart& part : parts)
    record_message(rank(), peer, part, MessageKind::payload, posted_us);
}

void ScheduledCommunicator::fetch(int peer, Bytes from, Bytes to, Bytes n) {
  const double posted = post_time_us();
  for (const PostedPart& piece : world_.transport.fetch(channel(peer, kDataChannel), from, to, n)) {
    record_message(peer, rank(), piece, MessageKind::payload, posted);
  }
}

void ScheduledCommunicator::await(int peer, std::uint64_t messages, const char* what) {
  messages_[at(peer)] += messages;
  world_.transport.wait(channel(peer, kDataChannel), messages_[at(peer)], what);
}

// The two that most steps are come first: a switch takes a jump through a table.
void ScheduledCommunicator::execute(const OperationPlan& plan, const PlanStep& step) {
  if (step.message != nullptr) {
    if (world_.recorder.enabled()) [[unlikely]]
      return start_recorded(step);
    step.message->start();
    return;
  }
  if (step.kind == PlanStep::Kind::await)
    return await(step.peer, static_cast<std::uint64_t>(step.n), plan.what.c_str());
  execute_other(plan, step);
}

void ScheduledCommunicator::execute_other(const OperationPlan& plan, const PlanStep& step) {
  switch (step.kind) {
    case PlanStep::Kind::give_credit:
      return tell(step.peer, kCreditChannel);
    case PlanStep::Kind::take_credit:
      return take_credit(step.peer, plan.what.c_str());
    case PlanStep::Kind::offer:
      return tell(step.peer, kDataChannel);
    case PlanStep::Kind::fetch:
      return fetch(step.peer, step.a, step.b, step.n);
    case PlanStep::Kind::post:
      return world_.transport.post();
    case PlanStep::Kind::flush:
      return world_.transport.flush();
    case PlanStep::Kind::copy:
      std::memcpy(step.to, plan.sources[static_cast<std::size_t>(step.a)],
                  static_cast<std::size_t>(step.n));
      return;
    case PlanStep::Kind::reduce:
      return reduce_sum(step.to, plan.sources.data() + step.a, static_cast<int>(step.b), step.n,
                        plan.dtype);
    case PlanStep::Kind::put:
    case PlanStep::Kind::send:
    case PlanStep::Kind::await:
    case PlanStep::Kind::as_ready:
      return;  // execute() did
  }
}

void ScheduledCommunicator::execute_as_ready(const OperationPlan& plan,
                                             std::span<const PlanStep> steps) {
  expected_.clear();
  leaves_.clear();
  for (const PlanStep& step : steps) {
    if (step.kind != PlanStep::Kind::take_credit) continue;
    expected_.push_back({channel(step.peer, kCreditChannel), credits_[at(step.peer)] + 1});
    leaves_.push_back(&step);
  }
  while (!leaves_.empty()) {
    const auto first =
        static_cast<std::ptrdiff_t>(world_.transport.wait_any(expected_, plan.what.c_str()));
    const PlanStep* step = leaves_[static_cast<std::size_t>(first)];
    ++credits_[at(step->peer)];
    for (++step; step != steps.data() + steps.size(); ++step) {
      if (step->kind == PlanStep::Kind::take_credit) break;
      step_ = step;
      execute(plan, *step);
    }
    world_.transport.post();
    expected_.erase(expected_.begin() + first);
    leaves_.erase(leaves_.begin() + first);
    if (!leaves_.empty()) step_ = leaves_.front();
  }
}

void ScheduledCommunicator::execute(const OperationPlan& plan) {
  for (auto step = plan.steps.begin(); step != plan.steps.end(); ++step) {
    step_ = &*step;
    if (step->kind == PlanStep::Kind::as_ready) {
      const auto n = static_cast<std::size_t>(step->n);
      execute_as_ready(plan, std::span(&*step + 1, n));
      step += step->n;
    } else {
      execute(plan, *step);
    }
  }
  step_ = nullptr;
}

/// Tells `peer` where its rows shall go, together with the credit.
void ScheduledCommunicator::publish_destination(int peer, const Operation& operation) {
  const Bytes element = size_of(operation.dtype);
  const Destination mine{
      world_.arena.offset_of(operation.out.data) + counts_.recv_at[at(peer)] * element,
      counts_.recv[at(peer)] * element};
  const Bytes published = control_ + peer * kControlLine;
  const Bytes told = peer_control_[at(peer)] + (size() + rank()) * kControlLine;
  std::memcpy(world_.arena.data() + published, &mine, sizeof mine);
  const double posted = post_time_us();
  world_.transport.put(channel(peer, kCreditChannel), published, told, sizeof mine);
  record_message(rank(), peer, {0, sizeof mine}, MessageKind::control, posted);
  tell(peer, kCreditChannel);
}

void ScheduledCommunicator::send_run_time(int peer, const Operation& operation, const char* what) {
  take_credit(peer, what);
  Destination theirs;
  std::memcpy(&theirs, world_.arena.data() + control_ + (size() + peer) * kControlLine,
              sizeof theirs);
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
       theirs.place, bytes);
}

/// The direct form, whatever the session's algorithm: counts that only the two ends know leave
/// nothing to forward. Every pair signals, also for no rows, so that no published destination is
/// overwritten before it was read.
void ScheduledCommunicator::execute_run_time(const Operation& operation, const char* what) {
  counts_.resolve(operation, rank());
  const auto peer = [this](int i) { return (rank() + i) % size(); };
  for (int i = size() - 1; i > 0; --i) publish_destination(peer(i), operation);
  const Bytes element = size_of(operation.dtype);
  for (int i = 1; i < size(); ++i) send_run_time(peer(i), operation, what);
  world_.transport.post();
  if (const Index own = counts_.send[at(rank())]; own > 0) {
    std::memcpy(operation.out.data + counts_.recv_at[at(rank())] * element,
                operation.in.data + counts_.send_at[at(rank())] * element,
                static_cast<std::size_t>(own * element));
  }
  for (int i = size() - 1; i > 0; --i) await(peer(i), 1, what);
}

void ScheduledCommunicator::fail_in(const OperationPlan& plan, const Error& error) const {
  if (error.code() != ExitCode::timed_out || step_ == nullptr) throw error;
  fail(error.code(),
       fmt::format("{} (round {} of {}, step {} of {})", error.what(), step_->round + 1,
                   plan.rounds, step_ - plan.steps.data() + 1, plan.steps.size()));
}

[[gnu::hot]] void ScheduledCommunicator::do_run(OperationId id, Stream&) {
  if (static_cast<std::size_t>(id) >= plans_.size()) {
    fail_usage(fmt::format("{} '{}' runs before commit()", to_string(operation(id).kind),
                           operation(id).label));
  }
  const OperationPlan& plan = plans_[static_cast<std::size_t>(id)];
  try {
    if (plan.native) return plan.native->run();
    plan.run_time ? execute_run_time(operation(id), plan.what.c_str()) : execute(plan);
    if (plan.flush) world_.transport.flush();
  } catch (const Error& error) {
    fail_in(plan, error);
  }
}

void ScheduledCommunicator::do_touch(OperationId id) const {
  const OperationPlan& plan = plans_[at(id)];
  weft::touch(&plan, sizeof plan);
  if (plan.native) return plan.native->touch();
  touch_all(plan.steps);
  touch_all(plan.sources);
  for (const auto& send : plan.sends) send->touch();
}

}  // namespace weft
