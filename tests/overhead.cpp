// What weft adds to what it measures: an executor step against the direct call, a recorded message
// against an unrecorded one, its gemm against the library called alone. One rank for the first and
// last, two for the message:
//   build/bin/overhead                      executor and gemm
//   mpiexec -n 2 build/bin/overhead message
// Prints medians and their ratios; it judges nothing.
#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "bench/clock_sync.hpp"
#include "bench/executor.hpp"
#include "patterns/builder.hpp"

namespace weft {
namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Medians of both, taken in turns.
std::pair<double, double> in_turns(int turns, const std::function<void()>& a,
                                   const std::function<void()>& b) {
  std::vector<double> times_a, times_b;
  for (int i = 0; i < turns; ++i) {
    for (const auto& [call, times] : {std::pair{&a, &times_a}, {&b, &times_b}}) {
      const double begin = monotonic_us();
      (*call)();
      times->push_back(monotonic_us() - begin);
    }
  }
  return {median(times_a), median(times_b)};
}

Program copies(int steps) {
  Program program;
  const View from = program.whole(program.add(generated("a", DType::f32, 1, 1)));
  const View to = program.whole(program.add(activation("b", DType::f32, 1, 1)));
  StepList list(program.steps, Direction::forward, Dimension::none);
  for (int i = 0; i < steps; ++i) {
    Compute op;
    op.kind = ComputeKind::copy;
    op.in = {from};
    op.out = {to};
    list.compute("copy", std::move(op));
  }
  return program;
}

void executor_steps(Bootstrap& bootstrap, KernelBackend& backend) {
  constexpr int kSteps = 2000;
  const Program program = copies(kSteps);
  Arena arena(MemorySpace::host, TensorPlacement::bytes(program), 1 << 20);
  const TensorPlacement placement(program, arena);
  Streams streams;
  const auto session = find_transport("shm").open(bootstrap, arena, {});
  Execution execution(program, placement, {bootstrap, backend, arena, *session, streams});
  session->commit();
  execution.prepare();
  const auto view = [&](TensorId id) {
    return BoundView{placement.address(id, 0), DType::f32, 1, 1, 1};
  };
  std::vector<std::unique_ptr<BoundCompute>> direct;
  for (const Step& step : program.steps) {
    direct.push_back(backend.bind(std::get<Compute>(step.op), {view(0)}, {view(1)}));
  }
  const auto [through, alone] = in_turns(
      301, [&] { execution.iterate(Phase::serial); },
      [&] {
        for (const auto& compute : direct) compute->run();
      });
  fmt::print("executor: {:.1f} ns a step, called directly {:.1f} ns, overhead {:.1f} ns\n",
             through / kSteps * 1e3, alone / kSteps * 1e3, (through - alone) / kSteps * 1e3);
}

struct GemmShape {
  const char* what;
  Index m, n, k;
};

void gemm(KernelBackend& backend, const GemmShape& shape) {
  std::vector<float> a(static_cast<std::size_t>(shape.m * shape.k), 0.5F),
      b(static_cast<std::size_t>(shape.k * shape.n), 0.25F),
      c(static_cast<std::size_t>(shape.m * shape.n));
  const auto view = [](std::vector<float>& data, Index rows, Index cols) {
    return BoundView{reinterpret_cast<std::byte*>(data.data()), DType::f32, rows, cols, cols};
  };
  Compute op;
  op.kind = ComputeKind::gemm;
  const auto bound = backend.bind(op, {view(a, shape.m, shape.k), view(b, shape.k, shape.n)},
                                  {view(c, shape.m, shape.n)});
  const auto library = [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(shape.m),
                static_cast<int>(shape.n), static_cast<int>(shape.k), 1.0F, a.data(),
                static_cast<int>(shape.k), b.data(), static_cast<int>(shape.n), 0.0F, c.data(),
                static_cast<int>(shape.n));
  };
  const auto [ours, alone] = in_turns(
      15, [&] { bound->run(); }, library);
  fmt::print(
      "gemm {:<28} {:>5} x {:>5} x {:>5}: {:>10.1f} us, OpenBLAS alone {:>10.1f} us, speed "
      "{:.3f}\n",
      shape.what, shape.m, shape.n, shape.k, ours, alone, alone / ours);
}

void gemms(KernelBackend& backend) {
  constexpr GemmShape kShapes[] = {
      {"gpt2-small qkv", 1024, 2304, 768},          {"gpt2-small attention out", 1024, 768, 768},
      {"gpt2-small mlp up", 1024, 3072, 768},       {"gpt2-small mlp down", 1024, 768, 3072},
      {"gpt2-small mlp up, tp 2", 1024, 1536, 768}, {"tiny mlp up", 32, 256, 64}};
  for (const GemmShape& shape : kShapes) gemm(backend, shape);
}

void messages(Bootstrap& bootstrap) {
  constexpr int kCalls = 20000;
  Arena arena(MemorySpace::host, 1 << 16, 1 << 20);
  const auto take = [&] { return BoundView{arena.take(64).data(), DType::f32, 1, 4, 4}; };
  const auto session = find_transport("shm").open(bootstrap, arena, {});
  Communicator& comm = session->communicator({Dimension::tp, RankSet{0, {{bootstrap.size(), 1}}}});
  const OperationId id = comm.prepare(
      {.kind = OperationKind::all_reduce, .in = take(), .out = take(), .label = "sum"});
  session->commit();
  const auto stream = make_stream(StreamKind::inline_);
  const auto call = [&](bool recorded) {
    bootstrap.barrier();
    session->recorder().clear();
    session->recorder().enable(recorded);
    for (int i = 0; i < kCalls; ++i) comm.run(id, *stream);
  };
  const auto [with, without] = in_turns(
      21, [&] { call(true); }, [&] { call(false); });
  call(true);
  const std::size_t messages = session->recorder().messages().size();
  if (bootstrap.rank() != 0) return;
  fmt::print(
      "recording: {:.1f} ns an all_reduce of 16 bytes with, {:.1f} ns without ({} messages)\n",
      with / kCalls * 1e3, without / kCalls * 1e3, messages);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const auto bootstrap = weft::make_mpi_bootstrap();
  if (argc > 1 && std::string_view(argv[1]) == "message") {
    weft::messages(*bootstrap);
    return 0;
  }
  const auto backend = weft::make_host_backend();
  backend->set_threads(1);
  weft::executor_steps(*bootstrap, *backend);
  weft::gemms(*backend);
}
