// AllReduce and ReduceScatter in one pass: every rank reads its block of all inputs at once and
// writes the sum where it belongs, an AllReduce to all outputs. The order of the summands is that
// of the group on every rank, so that all see the same bits.
#include <algorithm>

#include "kernels/backend.hpp"
#include "transports/shm_native_sizes.hpp"
#include "transports/shm_operation.hpp"
#include "transports/touch.hpp"

namespace weft {
namespace {

class ShmSum final : public ShmOperation {
 public:
  ShmSum(const ShmContext& context, ShmGroup* group, const NativeInput& input)
      : ShmOperation(context, group, input),
        dtype_(input.dtype),
        element_(size_of(input.dtype)),
        form_(shm_form(context.settings, input.sizes, element_)),
        block_(shm_sum_block(form_, input.sizes, element_, input.me)),
        in_(input.operation->in) {
    const bool to_all = form_ == ShmForm::share;
    const Index shift = input.sizes.kind == OperationKind::all_reduce ? block_.first : 0;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      std::byte* arena = context.peers.arena(members_[m].rank);
      const bool own = m == static_cast<std::size_t>(me_);
      sources_.push_back(arena + members_[m].in + block_.first * element_);
      for (auto& slots : slots_) slots.push_back(own ? sources_.back() : nullptr);
      if (to_all || own) outs_.push_back(arena + members_[m].out + shift * element_);
      if (to_all && !own) receivers_.push_back(static_cast<int>(m));
      if (own) continue;
      for (std::size_t s = 0; s < 2; ++s) {
        slots_[s].back() =
            group->board(static_cast<int>(m)).slots[s].payload + block_.first * element_;
      }
    }
    // Everyone writes its own output first: the ranks' stores then go to different places.
    if (to_all) std::rotate(outs_.begin(), outs_.begin() + me_, outs_.end());
  }

  void run() override {
    if (silent()) return sum(sources_);
    form_ == ShmForm::beside_flag ? run_beside_flag() : run_direct();
  }

  void touch() const override {
    weft::touch(this, sizeof *this);
    touch_all(sources_);
    for (const auto& slots : slots_) touch_all(slots);
    touch_all(outs_);
    touch_all(members_);
  }

 private:
  void sum(const std::vector<const std::byte*>& sources) const {
    if (block_.count == 0) return;
    const bool streaming = context_.streams(block_.count * element_,
                                            context_.settings.thresholds.sum_streaming_caches);
    reduce_sum_to_all(outs_.data(), static_cast<int>(outs_.size()), sources.data(),
                      static_cast<int>(sources.size()), block_.count, dtype_, streaming);
  }

  void run_direct() {
    const std::uint64_t k = arrive();
    each_arrived(k, [](int) {});
    const double posted = post_time_us();
    sum(sources_);
    record_block(posted);
    leave(k);
  }

  void run_beside_flag() {
    const std::uint64_t k = arrive_with(in_.data, in_.bytes());
    each_slot(k, [](int, const std::byte*) {});
    const double posted = post_time_us();
    sum(slots_[k % 2]);
    record_block(posted);
  }

  /// Every other member gave its block of input; each receiver got one of output.
  void record_block(double posted) {
    if (!recorder_.enabled()) return;
    const Bytes bytes = block_.count * element_;
    for (int m = 0; m < static_cast<int>(members_.size()); ++m) {
      if (m != me_) record(m, me_, bytes, MessageKind::payload, posted);
    }
    for (const int m : receivers_) record(me_, m, bytes, MessageKind::payload, posted);
  }

  DType dtype_;
  Bytes element_;
  ShmForm form_;
  ShmBlock block_;
  BoundView in_;
  std::vector<const std::byte*> sources_;   // this rank's block of the members' inputs
  std::vector<const std::byte*> slots_[2];  // the same in the members' slots
  std::vector<std::byte*> outs_;
  std::vector<int> receivers_;
};

}  // namespace

std::unique_ptr<NativeOperation> make_shm_sum(const ShmContext& context, ShmGroup* group,
                                              const NativeInput& input) {
  return std::make_unique<ShmSum>(context, group, input);
}

}  // namespace weft
