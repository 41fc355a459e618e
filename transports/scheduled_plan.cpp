#include "transports/scheduled_plan.hpp"

#include <algorithm>

#include "patterns/error.hpp"

namespace weft {
namespace {

using Kind = PlanStep::Kind;

class PlanBuilder {
 public:
  explicit PlanBuilder(const PlanSetting& setting)
      : setting_(setting), me_(places_of(setting.rank)), credited_(setting.places.size()) {
    plan_.dtype = setting.dtype;
  }

  OperationPlan build(const Schedule& schedule) {
    plan_.rounds = schedule.rounds();
    for (round_ = 0; round_ < plan_.rounds; ++round_) {
      const Round round = schedule.round(round_);
      for (const LocalStep& step : round.before) local(step);
      setting_.fetched_from ? pull(round) : push(round);
    }
    if (setting_.credits && !setting_.fetched_from) give_credits_first();
    return std::move(plan_);
  }

 private:
  void push(const Round& round) {
    send(round.sends);
    meanwhile(round);
    for (const Round::Receive& receive : round.receives) await(receive);
    for (const LocalStep& step : round.after) local(step);
  }

  /// A peer's next round may overwrite what this one fetches, so it hears before it goes on.
  void pull(const Round& round) {
    std::vector<int> readers;
    for (const Transfer& transfer : round.sends) {
      if (std::ranges::find(readers, transfer.peer) == readers.end())
        readers.push_back(transfer.peer);
    }
    for (const int peer : readers) add({.kind = Kind::offer, .peer = peer});
    for (const Round::Receive& receive : round.receives) fetch(receive.peer);
    meanwhile(round);
    if (!round.receives.empty()) add({.kind = Kind::flush});
    for (const Round::Receive& receive : round.receives)
      add({.kind = Kind::give_credit, .peer = receive.peer});
    for (const LocalStep& step : round.after) local(step);
    for (const int peer : readers) add({.kind = Kind::take_credit, .peer = peer});
  }

  /// A message without a credit is posted when it is sent.
  void meanwhile(const Round& round) {
    if (round.meanwhile.empty()) return;
    if (setting_.credits || setting_.fetched_from) add({.kind = Kind::post});
    for (const LocalStep& step : round.meanwhile) local(step);
  }

  void fetch(int peer) {
    add({.kind = Kind::await, .peer = peer, .n = 1});
    for (const Transfer& theirs : setting_.fetched_from(peer)->round(round_).sends) {
      if (theirs.peer != setting_.rank) continue;
      add({.kind = Kind::fetch,
           .peer = peer,
           .a = place(theirs.from, places_of(peer)),
           .b = place(theirs.to, me_),
           .n = theirs.elements * size_of(plan_.dtype)});
    }
  }

  /// Peers that have to give a credit first come last, in the order of their credits: one that is
  /// late holds up nobody else.
  void send(const std::vector<Transfer>& sends) {
    std::vector<int> unready;
    for (const Transfer& t : sends) {
      const bool seen = std::ranges::find(unready, t.peer) != unready.end();
      if (setting_.credits && !credited_[static_cast<std::size_t>(t.peer)] && !seen)
        unready.push_back(t.peer);
    }
    for (const Transfer& t : sends)
      if (std::ranges::find(unready, t.peer) == unready.end()) send(t);
    const std::size_t at = plan_.steps.size();
    if (unready.size() > 1) add({.kind = Kind::as_ready});
    for (const int peer : unready)
      for (const Transfer& t : sends)
        if (t.peer == peer) send(t);
    if (unready.size() > 1) plan_.steps[at].n = static_cast<Bytes>(plan_.steps.size() - at - 1);
  }

  void send(const Transfer& t) {
    const auto peer = static_cast<std::size_t>(t.peer);
    if (setting_.credits && !credited_[peer]) add({.kind = Kind::take_credit, .peer = t.peer});
    credited_[peer] = true;
    add({.kind = setting_.credits ? Kind::put : Kind::send,
         .peer = t.peer,
         .a = place(t.from, me_),
         .b = place(t.to, places_of(t.peer)),
         .n = t.elements * size_of(plan_.dtype)});
  }

  void await(const Round::Receive& r) {
    add({.kind = Kind::await, .peer = r.peer, .n = r.messages});
    if (std::find(senders_.begin(), senders_.end(), r.peer) == senders_.end())
      senders_.push_back(r.peer);
  }

  void local(const LocalStep& step) {
    const std::byte* from = address(step.from);
    std::byte* to = address(step.to);
    const bool reduce = step.kind == LocalStep::Kind::reduce;
    const Bytes n = reduce ? step.elements : step.elements * size_of(plan_.dtype);
    if (n == 0 || (!reduce && from == to)) return;
    if (reduce && extend_reduce(from, to, n)) return;
    const auto first = static_cast<Bytes>(plan_.sources.size());
    if (reduce) plan_.sources.push_back(to);
    plan_.sources.push_back(from);
    add({.kind = reduce ? Kind::reduce : Kind::copy,
         .a = first,
         .b = reduce ? 2 : 1,
         .n = n,
         .to = to});
  }

  /// Reductions into one place become one pass: fewer bytes moved, and one rounding to storage in
  /// place of several.
  bool extend_reduce(const std::byte* from, const std::byte* to, Index elements) {
    if (plan_.steps.empty()) return false;
    PlanStep& last = plan_.steps.back();
    const Bytes bytes = elements * size_of(plan_.dtype);
    const bool follows = last.to == to && ((last.kind == Kind::reduce && last.n == elements) ||
                                           (last.kind == Kind::copy && last.n == bytes));
    if (!follows) return false;
    last.kind = Kind::reduce;
    last.n = elements;
    ++last.b;
    plan_.sources.push_back(from);
    return true;
  }

  void give_credits_first() {
    std::vector<PlanStep> credits;
    for (const int peer : senders_) credits.push_back({.kind = Kind::give_credit, .peer = peer});
    plan_.steps.insert(plan_.steps.begin(), credits.begin(), credits.end());
  }

  void add(PlanStep step) {
    step.round = round_;
    plan_.steps.push_back(step);
  }

  Bytes place(const Place& p, const Places& whose) const {
    const Bytes base = p.role == BufferRole::in    ? whose.in
                       : p.role == BufferRole::out ? whose.out
                                                   : whose.scratch;
    if (base < 0) fail(ExitCode::failed, "a schedule uses a buffer that this member does not have");
    return base + p.offset * size_of(plan_.dtype);
  }
  std::byte* address(const Place& p) const { return setting_.arena.data() + place(p, me_); }
  const Places& places_of(int member) const {
    return setting_.places[static_cast<std::size_t>(member)];
  }

  const PlanSetting& setting_;
  Places me_;
  std::vector<bool> credited_;
  std::vector<int> senders_;
  OperationPlan plan_;
  int round_ = 0;
};

}  // namespace

OperationPlan make_plan(const Schedule& schedule, const PlanSetting& setting) {
  return PlanBuilder(setting).build(schedule);
}

OperationPlan make_point_plan(const std::vector<PointPlace>& members, bool in_order) {
  OperationPlan plan;
  for (const PointPlace& m : members) {
    if (!m.send && m.leave.opens) plan.steps.push_back({.kind = Kind::give_credit, .peer = m.peer});
  }
  const auto await = [&](const PointPlace& m) {
    plan.steps.push_back({.kind = Kind::await, .peer = m.peer, .n = 1});
  };
  for (const PointPlace& m : members) {
    if (!m.send) {
      if (in_order) await(m);
      continue;
    }
    if (m.leave.opens) plan.steps.push_back({.kind = Kind::take_credit, .peer = m.peer});
    plan.steps.push_back({.kind = m.leave.credited ? Kind::put : Kind::send,
                          .peer = m.peer,
                          .a = m.local,
                          .b = m.remote,
                          .n = m.bytes});
  }
  for (const PointPlace& m : members) {
    if (!m.send && !in_order) await(m);
  }
  plan.rounds = 1;
  return plan;
}

}  // namespace weft
