// AllGather, Broadcast and AllToAllV: every rank pulls its parts of the others' inputs. With counts
// known at run time only, the sender publishes beside its ready flag where each part lies.
#include <fmt/format.h>

#include "patterns/error.hpp"
#include "transports/run_time_counts.hpp"
#include "transports/schedule_builders.hpp"
#include "transports/shm_native_sizes.hpp"
#include "transports/shm_operation.hpp"
#include "transports/touch.hpp"

namespace weft {
namespace {

/// A part of a member's input that belongs into this rank's output.
struct Pull {
  Bytes offset = 0;  // in the input
  std::byte* to = nullptr;
  Bytes bytes = 0;
};

class ShmPull final : public ShmOperation {
 public:
  ShmPull(const ShmContext& context, ShmGroup* group, const NativeInput& input)
      : ShmOperation(context, group, input),
        element_(size_of(input.dtype)),
        pulls_(input.members.size()),
        sources_(input.members.size()) {
    for (std::size_t m = 0; m < pulls_.size(); ++m) {
      if (members_[m].in >= 0) sources_[m] = context.peers.arena(members_[m].rank) + members_[m].in;
      pulls_[m] = pull_of(input, static_cast<int>(m));
    }
    in_ = input.operation->in;
    beside_flag_ = shm_form(context.settings, input.sizes, element_) == ShmForm::beside_flag;
  }

  void run() override {
    if (group_ == nullptr) return pull_own();
    if (silent()) return run_silently();
    beside_flag_ ? run_beside_flag() : run_direct();
  }

  void touch() const override {
    weft::touch(this, sizeof *this);
    touch_all(pulls_);
    touch_all(sources_);
    touch_all(members_);
  }

 private:
  Pull pull_of(const NativeInput& input, int from) const {
    const ScheduleInput& sizes = input.sizes;
    std::byte* out = input.operation->out.data;
    switch (sizes.kind) {
      case OperationKind::all_gather:
        return {0, out + Blocks(sizes.counts).offset(from) * element_,
                count_of(sizes, from) * element_};
      case OperationKind::broadcast:
        return {0, out, from == sizes.root ? sizes.counts[0] * element_ : 0};
      case OperationKind::all_to_all_v:
        return {send_offset(sizes, from, me_) * element_,
                out + recv_offset(sizes, from, me_) * element_, cell(sizes, from, me_) * element_};
      default:  // a sum of a group of one: its input
        return {0, out, input.operation->in.bytes()};
    }
  }

  void pull_own() const {
    const Pull& own = pulls_[static_cast<std::size_t>(me_)];
    if (own.bytes > 0)
      copy(own.to, sources_[static_cast<std::size_t>(me_)] + own.offset, own.bytes);
  }

  void pull(int from, const std::byte* source) {
    const Pull& part = pulls_[static_cast<std::size_t>(from)];
    if (part.bytes == 0) return;
    const double posted = post_time_us();
    copy(part.to, source + part.offset, part.bytes);
    record(from, me_, part.bytes, MessageKind::payload, posted);
  }

  void run_direct() {
    const std::uint64_t k = arrive();
    pull_own();
    each_arrived(k, [&](int member) { pull(member, sources_[static_cast<std::size_t>(member)]); });
    leave(k);
  }

  void run_beside_flag() {
    const std::uint64_t k = arrive_with(in_.data, in_.bytes());
    pull_own();
    each_slot(k, [&](int member, const std::byte* payload) { pull(member, payload); });
  }

  void run_silently() {
    pull_own();
    const auto n = static_cast<int>(members_.size());
    for (int i = 1; i < n; ++i) {
      const int member = (me_ + i) % n;
      pull(member, sources_[static_cast<std::size_t>(member)]);
    }
  }

  Bytes element_;
  std::vector<Pull> pulls_;                // by group index
  std::vector<const std::byte*> sources_;  // the members' inputs
  BoundView in_;
  bool beside_flag_ = false;
};

class ShmRunTimePull final : public ShmOperation {
 public:
  ShmRunTimePull(const ShmContext& context, ShmGroup* group, const NativeInput& input)
      : ShmOperation(context, group, input),
        operation_(*input.operation),
        element_(size_of(input.dtype)),
        in_place_(input.members[static_cast<std::size_t>(input.me)].in),
        counts_(static_cast<int>(input.members.size())) {}

  void run() override {
    counts_.resolve(operation_, me_);
    if (group_ == nullptr) return pull_own();
    publish_parts();
    const std::uint64_t k = arrive();
    pull_own();
    each_arrived(k, [&](int member) { pull(member); });
    leave(k);
  }

 private:
  static std::size_t at(int member) { return static_cast<std::size_t>(member); }

  void publish_parts() {
    Board& board = group_->own();
    for (std::size_t p = 0; p < members_.size(); ++p) {
      board.parts[p] = {in_place_ + counts_.send_at[p] * element_, counts_.send[p] * element_};
    }
  }

  void pull_own() {
    copy(operation_.out.data + counts_.recv_at[at(me_)] * element_,
         operation_.in.data + counts_.send_at[at(me_)] * element_,
         counts_.recv[at(me_)] * element_);
  }

  void pull(int from) {
    const PulledPart part = group_->board(from).parts[me_];
    record(from, me_, sizeof part, MessageKind::control, post_time_us());
    const Bytes expected = counts_.recv[at(from)] * element_;
    if (part.bytes != expected) fail_counts(from, part.bytes, expected);
    if (part.bytes == 0) return;
    const double posted = post_time_us();
    copy(operation_.out.data + counts_.recv_at[at(from)] * element_,
         context_.peers.arena(members_[at(from)].rank) + part.place, part.bytes);
    record(from, me_, part.bytes, MessageKind::payload, posted);
  }

  [[noreturn]] void fail_counts(int from, Bytes given, Bytes expected) const {
    const Bytes row = operation_.run_time->row_elements * element_;
    fail(ExitCode::failed,
         fmt::format("{}: rank {} has {} rows for rank {}, which expects {}; look at the exchange "
                     "of counts before it",
                     what_, members_[at(from)].rank, given / row, members_[at(me_)].rank,
                     expected / row));
  }

  const Operation& operation_;
  Bytes element_;
  Bytes in_place_;
  ExchangeCounts counts_;
};

}  // namespace

std::unique_ptr<NativeOperation> make_shm_pull(const ShmContext& context, ShmGroup* group,
                                               const NativeInput& input) {
  return std::make_unique<ShmPull>(context, group, input);
}

std::unique_ptr<NativeOperation> make_shm_run_time_pull(const ShmContext& context, ShmGroup* group,
                                                        const NativeInput& input) {
  return std::make_unique<ShmRunTimePull>(context, group, input);
}

}  // namespace weft
