// The reference against the host backend, on the unsharded programs of all patterns: what really
// computes stays inside the bounds, and uses a fair part of them.
#include <algorithm>
#include <map>

#include "kernels_reference.hpp"
#include "patterns/pattern.hpp"

namespace weft {
namespace {

using namespace reference_test;

/// Runs a program of one rank in the order of its list.
class Run {
 public:
  explicit Run(const Program& program) : program_(program), backend_(make_host_backend()) {
    backend_->set_threads(1);
    for (const Tensor& tensor : program.tensors) {
      memory_.emplace_back(static_cast<std::size_t>(tensor.bytes()));
      for (int slot = 0; slot < tensor.slots; ++slot) {
        fill_tensor(tensor, slot, memory_.back().data() + slot * bytes_of_slot(tensor), kSeed);
      }
    }
    for (const auto* list : {&program.prologue, &program.steps}) {
      for (const FlatStep& step : flatten(program, *list)) run(step);
    }
  }

  double element(std::size_t tensor, int slot, Index row, Index col) const {
    const Tensor& t = program_.tensors[tensor];
    return load_element(memory_[tensor].data() + slot * bytes_of_slot(t), t.dtype,
                        row * t.cols + col);
  }

 private:
  static Bytes bytes_of_slot(const Tensor& tensor) {
    return tensor.elements() * size_of(tensor.dtype);
  }

  BoundView bound(const View& view) {
    const auto id = static_cast<std::size_t>(view.tensor);
    const Tensor& t = program_.tensors[id];
    std::byte* data =
        memory_[id].data() + view.slot * bytes_of_slot(t) + view.offset * size_of(t.dtype);
    return {data, t.dtype, view.rows, view.cols, view.ld};
  }
  std::vector<BoundView> bound(const std::vector<View>& views) {
    std::vector<BoundView> all;
    for (const View& view : views) all.push_back(bound(view));
    return all;
  }
  void run(const FlatStep& step) {
    if (const auto* op = std::get_if<Compute>(&step.op)) {
      backend_->bind(*op, bound(op->in), bound(op->out))->run();
    } else {
      const auto& collective = std::get<Collective>(step.op);
      const BoundView from = bound(collective.in), to = bound(collective.out);
      std::memcpy(to.data, from.data, static_cast<std::size_t>(std::min(from.bytes(), to.bytes())));
    }
  }

  const Program& program_;
  std::unique_ptr<KernelBackend> backend_;
  std::vector<std::vector<std::byte>> memory_;
};

/// The selections of a run become hints.
void give_hints(const Program& program, const Run& run, Reference& reference) {
  std::map<TensorId, std::vector<std::int32_t>> hints;
  for_each_leaf(program.steps, [&](const Step& step, std::int64_t) {
    const auto* op = std::get_if<Compute>(&step.op);
    if (op && op->kind == ComputeKind::top_k) hints[op->out[0].tensor] = {};
  });
  for_each_leaf(program.prologue, [&](const Step& step, std::int64_t) {
    const auto* op = std::get_if<Compute>(&step.op);
    if (op && op->kind == ComputeKind::top_k) hints[op->out[0].tensor] = {};
  });
  for (auto& [id, values] : hints) {
    const auto t = static_cast<std::size_t>(id);
    const Tensor& tensor = program.tensors[t];
    for (int slot = 0; slot < tensor.slots; ++slot) {
      for (Index e = 0; e < tensor.elements(); ++e) {
        values.push_back(
            static_cast<std::int32_t>(run.element(t, slot, e / tensor.cols, e % tensor.cols)));
      }
    }
    reference.hint(tensor.name, values);
  }
}

/// Largest error in units of its bound, over all checked elements.
double strain(const Program& program) {
  const Run run(program);
  Reference reference(program, kSeed);
  give_hints(program, run, reference);
  double worst = 0;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (!tensor.check) continue;
    for (int slot = 0; slot < tensor.slots; ++slot) {
      for (Index e = 0; e < tensor.elements(); ++e) {
        const Index row = e / tensor.cols, col = e % tensor.cols;
        const Bounded expected =
            reference.element(tensor.name, tensor.slot_offset + slot, row, col);
        const double error = std::fabs(run.element(t, slot, row, col) - expected.value);
        if (error == 0) continue;
        if (!(error <= expected.bound)) {
          ADD_FAILURE() << tensor.name << "[" << slot << "](" << row << ", " << col << ") is "
                        << run.element(t, slot, row, col) << ", not " << expected.value << " +- "
                        << expected.bound;
          return error / expected.bound;
        }
        worst = std::max(worst, error / expected.bound);
      }
    }
  }
  return worst;
}

TEST(ReferenceHost, EveryPatternStaysInsideTheBounds) {
  for (const Pattern* pattern : patterns()) {
    const ModelShape& model = find_model(pattern->dim == Dimension::ep ? "tiny-moe" : "tiny");
    for (const Direction direction : pattern->directions) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        PatternOptions options;
        options.seq = 32;
        options.dtype = options.grad_dtype = dtype;
        options.direction = direction;
        options.micro_batches = 2;
        const Layout layout = Layout::make({}, 1);
        SCOPED_TRACE(std::string(pattern->name) + " " + std::string(to_string(direction)) + " " +
                     std::string(to_string(dtype)));
        const double used = strain(pattern->make_reference(model, layout, options));
        EXPECT_GE(used, 0.1);
      }
    }
  }
}

}  // namespace
}  // namespace weft
