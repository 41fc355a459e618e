#include "bench/executor.hpp"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "bench/token_payload.hpp"
#include "transports/touch.hpp"

namespace weft {
namespace {

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

bool is_gemm(ComputeKind kind) {
  return kind == ComputeKind::gemm || kind == ComputeKind::grouped_gemm ||
         kind == ComputeKind::grouped_wgrad;
}

}  // namespace

Execution::Execution(const Program& program, const TensorPlacement& placement,
                     const ExecutionContext& context)
    : program_(program), placement_(placement), context_(context) {
  bind_steps(program.prologue, prologue_, true);
  bind_steps(program.steps, steps_, false);
}

Execution Execution::hollow() const {
  ExecutionContext context = context_;
  context.payload = Payload::token;
  return Execution(program_, placement_, context);
}

BoundView Execution::bind(const View& view) const {
  const Tensor& tensor = program_.tensors[static_cast<std::size_t>(view.tensor)];
  return {address(view.tensor, view.slot) + view.offset * size_of(tensor.dtype), tensor.dtype,
          view.rows, view.cols, view.ld};
}

void Execution::bind_steps(const std::vector<Step>& steps, std::deque<BoundStep>& bound,
                           bool prologue) {
  const std::vector<FlatStep> flat = flatten(program_, steps);
  for (const FlatStep& step : flat) {
    BoundStep& target = bound.emplace_back();
    target.owner = this;
    target.after_steps = step.after;
    target.span.step = static_cast<int>(bound.size()) - 1;
    target.span.stream = step.stream;
    target.label = step.label;
    target.stream = step.stream;
    if (const auto* compute = std::get_if<Compute>(&step.op)) {
      bind_compute(*compute, target);
    } else {
      bind_communication(step, target, prologue);
    }
    for (int before : step.after) {
      BoundStep& source = bound[static_cast<std::size_t>(before)];
      if (source.stream == step.stream) continue;  // a stream keeps its own order
      source.awaited = true;
      target.after.push_back(&source.done);
    }
  }
}

void Execution::bind_compute(const Compute& op, BoundStep& step) {
  std::vector<BoundView> in, out;
  for (const View& view : op.in) in.push_back(bind(view));
  for (const View& view : op.out) out.push_back(bind(view));
  step.compute = context_.backend.bind(op, std::move(in), std::move(out));
  step.gemm = is_gemm(op.kind);
}

Operation Execution::operation_of(const Collective& op) const {
  Operation result;
  result.kind = static_cast<OperationKind>(op.kind);  // the collectives stand first, in one order
  result.in = bind(op.in);
  result.out = bind(op.out);
  result.counts = op.counts;
  result.recv_counts = op.recv_counts;
  result.root = op.root;
  result.dtype = result.in.dtype;
  if (op.run_time) {
    const auto entries = [&](const View& view) {
      return reinterpret_cast<const std::int32_t*>(bind(view).data);
    };
    result.run_time = RunTimeCounts{entries(op.run_time->send), entries(op.run_time->recv),
                                    op.run_time->per_peer, op.run_time->row_elements};
  }
  return result;
}
static_assert(static_cast<int>(OperationKind::all_gather) ==
                  static_cast<int>(CollectiveKind::all_gather) &&
              static_cast<int>(OperationKind::all_to_all_v) ==
                  static_cast<int>(CollectiveKind::all_to_all_v));

Operation Execution::operation_of(const std::vector<SendRecv>& members, GroupId& group) const {
  Operation result;
  result.kind = OperationKind::point_to_point;
  for (const SendRecv& member : members) {
    group = member.group;
    result.members.push_back({member.send, member.peer, bind(member.data)});
    result.dtype = result.members.back().data.dtype;
  }
  return result;
}

void Execution::bind_communication(const FlatStep& flat, BoundStep& step, bool prologue) {
  Operation operation;
  GroupId group = 0;
  if (const auto* collective = std::get_if<Collective>(&flat.op)) {
    operation = operation_of(*collective);
    group = collective->group;
  } else if (const auto* together = std::get_if<PostedTogether>(&flat.op)) {
    operation = operation_of(together->members, group);
  } else {
    operation = operation_of({std::get<SendRecv>(flat.op)}, group);
  }
  operation.label = flat.label;
  step.comm = &context_.session.communicator(program_.groups[static_cast<std::size_t>(group)]);
  if (context_.payload == Payload::token && !prologue) {
    operation = with_token_payload(operation, step.comm->size(), step.comm->rank(), context_.arena);
  }
  step.operation = step.comm->prepare(operation);
  if (!prologue) {
    communications_.push_back(
        {step.comm, step.operation, operation, flat.dim, flat.direction, prologue});
  }
}

void Execution::prepare() {
  fill();
  context_.bootstrap.barrier();  // no peer may write into memory that is still being filled
  run_prologue();
}

void Execution::run_prologue() {
  for (BoundStep& step : prologue_) run_step(step, *context_.streams.compute);
}

void Execution::fill() {
  for (std::size_t id = 0; id < program_.tensors.size(); ++id) {
    const Tensor& tensor = program_.tensors[id];
    for (int slot = 0; slot < tensor.slots; ++slot) {
      std::byte* data = address(static_cast<TensorId>(id), slot);
      if (tensor.fill == Fill::none) {
        poison(data, tensor.elements(), tensor.dtype);
      } else {
        fill_tensor(tensor, slot, data, context_.seed);
      }
    }
  }
}

void Execution::run_step(BoundStep& step, Stream& stream) {
  context_.streams.current.store(step.label.c_str(), std::memory_order_relaxed);
  if (step.compute) {
    step.compute->run();
  } else {
    step.comm->run(step.operation, stream);
  }
}

void Execution::run_timed(BoundStep& step, Stream& stream) {
  step.span.begin_us = now_us();
  run_step(step, stream);
  step.span.end_us = now_us();
}

void Execution::run_task(void* step) {
  auto* bound = static_cast<BoundStep*>(step);
  Execution& self = *bound->owner;
  Streams& streams = self.context_.streams;
  Stream& stream = bound->stream == StreamRole::comm ? *streams.comm : *streams.compute;
  self.traced_ ? self.run_timed(*bound, stream) : self.run_step(*bound, stream);
}

void Execution::submit(StreamRole role, Stream& stream) {
  for (BoundStep& step : steps_) {
    if (step.stream != role) continue;
    for (Event* event : step.after) stream.wait(*event);
    stream.submit({&Execution::run_task, &step});
    if (step.awaited) stream.record(step.done);
  }
}

// The comm stream's work is queued first: its worker makes progress while this thread computes.
void Execution::run_overlapped() {
  for (BoundStep& step : steps_) {
    if (step.awaited) step.done.reset();
  }
  submit(StreamRole::comm, *context_.streams.comm);
  submit(StreamRole::compute, *context_.streams.compute);
  context_.streams.compute->synchronize();
  context_.streams.comm->synchronize();
}

bool Execution::has(Phase phase, const BoundStep& step) {
  return phase == Phase::serial || phase == Phase::overlap ||
         (phase == Phase::compute) == (step.compute != nullptr);
}

std::vector<StepSpan> Execution::iterate_traced(Phase phase) {
  traced_ = true;
  iterate(phase);
  traced_ = false;
  std::vector<StepSpan> spans;
  for (const BoundStep& step : steps_) {
    if (has(phase, step)) spans.push_back(step.span);
  }
  std::ranges::stable_sort(
      spans, {}, [](const StepSpan& span) { return std::tuple(span.stream, span.begin_us); });
  return spans;
}

void Execution::iterate(Phase phase) {
  if (phase == Phase::overlap) {
    run_overlapped();
  } else {
    for (BoundStep& step : steps_) {
      if (!has(phase, step)) continue;
      traced_ ? run_timed(step, *context_.streams.compute)
              : run_step(step, *context_.streams.compute);
    }
  }
  context_.streams.current.store("", std::memory_order_relaxed);
}

void Execution::touch(Phase phase) const {
  for (const BoundStep& step : steps_) {
    if (!has(phase, step)) continue;
    weft::touch(&step, sizeof step);
    touch_all(step.label);
    if (step.comm) step.comm->touch(step.operation);
  }
}

double Execution::gemm_flops() const {
  double flops = 0;
  for_each_leaf(program_.steps, [&](const Step& leaf, std::int64_t times) {
    const auto* compute = std::get_if<Compute>(&leaf.op);
    if (compute && is_gemm(compute->kind)) flops += static_cast<double>(times) * compute->flops();
  });
  return flops;
}

GemmTime Execution::time_gemms() {
  GemmTime time;
  time.flops = gemm_flops();
  const double begin = now_us();
  for (BoundStep& step : steps_) {
    const double start = step.gemm ? now_us() : 0;
    run_step(step, *context_.streams.compute);
    if (step.gemm) time.gemm_us += now_us() - start;
  }
  time.iteration_us = now_us() - begin;
  context_.streams.current.store("", std::memory_order_relaxed);
  return time;
}

void Execution::run_communication(const BoundCommunication& step) {
  context_.streams.current.store(step.operation.label.c_str(), std::memory_order_relaxed);
  step.comm->run(step.id, *context_.streams.compute);
}

}  // namespace weft
