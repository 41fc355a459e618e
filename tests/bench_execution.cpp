// Executor and verification, on ranks that are threads of this process and the shm wire.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "bench/accounting.hpp"
#include "bench/clock_sync.hpp"
#include "bench/executor.hpp"
#include "bench/verify.hpp"
#include "patterns/pattern.hpp"

namespace weft {
namespace {

struct Setting {
  const char* pattern;
  Direction direction;
  LayoutSpec layout;
  const char* algorithm = "ring";
};

PatternOptions tiny_options(Direction direction) {
  PatternOptions options;
  options.seq = 8;
  options.layers = 2;
  options.micro_batches = 3;
  options.direction = direction;
  return options;
}

using Body = std::function<void(Execution&, Session&, Bootstrap&, ResultCheck&)>;

void on_rank(Bootstrap& bootstrap, const Setting& setting, const Body& body) {
  const Pattern& pattern = find_pattern(setting.pattern);
  const ModelShape& model = find_model("tiny");
  const Layout layout = Layout::make(setting.layout, bootstrap.size());
  const PatternOptions options = tiny_options(setting.direction);
  const Program program = pattern.make(model, layout, options, bootstrap.rank());
  const Program reference = pattern.make_reference(model, layout, options);
  Arena arena(MemorySpace::host, TensorPlacement::bytes(program), Bytes{16} << 20);
  const TensorPlacement placement(program, arena);
  Streams streams;
  SessionOptions session_options;
  session_options.algorithm = setting.algorithm;
  session_options.oversubscribed = true;
  const auto backend = make_host_backend();
  backend->set_threads(1);
  const auto session = find_transport("shm").open(bootstrap, arena, session_options);
  Execution execution(program, placement, {bootstrap, *backend, arena, *session, streams, 1});
  session->commit();
  ResultCheck check(reference, 1);
  body(execution, *session, bootstrap, check);
}

void on_ranks(int n, const Setting& setting, const Body& body) {
  auto bootstraps = make_thread_bootstraps(n);
  std::vector<std::thread> threads;
  for (auto& bootstrap : bootstraps) {
    threads.emplace_back([&] { on_rank(*bootstrap, setting, body); });
  }
  for (std::thread& thread : threads) thread.join();
}

const Setting kSettings[] = {
    {"tp-allgather", Direction::forward, {.tp = 2}},
    {"tp-allgather", Direction::backward, {.tp = 2}, "direct"},
    {"row-allreduce", Direction::forward, {.tp = 2}, "recursive"},
    {"pp-sendrecv", Direction::both, {.pp = 2}},
    {"dp-gradsync", Direction::backward, {.dp = 2}, "one-shot"},
    {"moe-alltoall", Direction::forward, {.ep = 2}},
    {"moe-alltoall", Direction::backward, {.ep = 2}, "hierarchical"},
};

TEST(Execution, EveryPatternVerifies) {
  for (const Setting& setting : kSettings) {
    on_ranks(2, setting,
             [&](Execution& execution, Session&, Bootstrap& bootstrap, ResultCheck& check) {
               const Verdict verdict = verify(execution, check, bootstrap, Injection{});
               EXPECT_TRUE(verdict.passed) << setting.pattern << ": " << verdict.why;
               EXPECT_GT(verdict.exchanged, 0) << setting.pattern;
               EXPECT_GT(verdict.results, 0) << setting.pattern;
               EXPECT_EQ(verdict.beyond_budget, 0) << setting.pattern;
             });
  }
}

TEST(Execution, EachCheckSeesItsOwnFault) {
  for (const Setting& setting : kSettings) {
    for (const char* fault : {"half:1:0@exchange", "half:1:0@result", "swap:0@exchange"}) {
      on_ranks(2, setting,
               [&](Execution& execution, Session&, Bootstrap& bootstrap, ResultCheck& check) {
                 const Verdict verdict =
                     verify(execution, check, bootstrap, Injection::parse(fault));
                 EXPECT_FALSE(verdict.passed) << setting.pattern << " " << fault;
                 const char* rank = fault[5] == '1' ? "rank 1" : "rank 0";
                 EXPECT_NE(verdict.why.find(rank), std::string::npos) << verdict.why;
               });
    }
  }
}

// M = T*f*e gathered; each of two ranks sends its half: the closed forms of a column-parallel
// layer.
TEST(Accounting, BytesOfAnAllGather) {
  on_ranks(2, kSettings[0],
           [](Execution& execution, Session& session, Bootstrap& bootstrap, ResultCheck&) {
             execution.prepare();
             const IterationTraffic traffic = account_iteration(execution, session, bootstrap);
             const double gathered = 8 * 256 * 4;
             EXPECT_EQ(traffic.logical, gathered);
             EXPECT_EQ(traffic.bus, gathered / 2);
             EXPECT_EQ(traffic.wire_sent_max, gathered / 2);
             EXPECT_EQ(traffic.ledger.bytes(MessageKind::payload), 8 * 256 * 4);
             EXPECT_EQ(traffic.operations, 1);
           });
}

TEST(Accounting, GemmTimeIsPartOfTheIteration) {
  on_ranks(2, kSettings[1], [](Execution& execution, Session&, Bootstrap&, ResultCheck&) {
    execution.prepare();
    const GemmTime time = execution.time_gemms();
    EXPECT_GT(time.gemm_us, 0);
    EXPECT_LE(time.gemm_us, time.iteration_us);
    EXPECT_EQ(time.flops, 2 * 2.0 * 8 * 64 * 128);  // dX and dA: 2mnk each
  });
}

// Without payload the same steps run and the same ranks wait for each other; a full iteration after
// it gives what it would have given.
TEST(Execution, ATokenPayloadMovesAlmostNothingAndSpoilsNothing) {
  for (const Setting& setting : kSettings) {
    on_ranks(2, setting,
             [&](Execution& execution, Session& session, Bootstrap& bootstrap, ResultCheck& check) {
               execution.prepare();
               execution.iterate(Phase::serial);
               const IterationTraffic full = account_iteration(execution, session, bootstrap);
               Execution hollow = execution.hollow();
               session.commit();
               const IterationTraffic token = account_iteration(hollow, session, bootstrap);
               EXPECT_EQ(token.operations, full.operations) << setting.pattern;
               const auto payload = [](const IterationTraffic& traffic) {
                 return traffic.ledger.bytes(MessageKind::payload);
               };
               EXPECT_LT(payload(token) * 16, payload(full)) << setting.pattern;
               EXPECT_GT(payload(token), 0) << setting.pattern;
               hollow.iterate(Phase::overlap);
               execution.iterate(Phase::overlap);
               const Verdict verdict = check.run(execution, bootstrap, Injection{});
               EXPECT_TRUE(verdict.passed) << setting.pattern << ": " << verdict.why;
             });
  }
}

TEST(Execution, TracedStepsLieInsideTheIterationAndKeepTheirOrder) {
  on_ranks(2, kSettings[4], [](Execution& execution, Session&, Bootstrap&, ResultCheck&) {
    execution.prepare();
    execution.iterate(Phase::serial);
    for (Phase phase : {Phase::serial, Phase::overlap, Phase::compute, Phase::comm}) {
      const double begin = monotonic_us();
      const std::vector<StepSpan> spans = execution.iterate_traced(phase);
      const double end = monotonic_us();
      ASSERT_FALSE(spans.empty());
      std::map<int, StepSpan> by_step;
      for (const StepSpan& span : spans) {
        EXPECT_LE(begin, span.begin_us);
        EXPECT_LE(span.begin_us, span.end_us);
        EXPECT_LE(span.end_us, end);
        by_step[span.step] = span;
      }
      if (phase != Phase::overlap) continue;
      EXPECT_EQ(by_step.size(), static_cast<std::size_t>(execution.step_count()));
      for (const auto& [step, span] : by_step) {
        for (int before : execution.step_after(step)) {
          EXPECT_LE(by_step.at(before).end_us, span.begin_us)
              << execution.step_label(before) << " before " << execution.step_label(step);
        }
      }
    }
  });
}

TEST(Injection, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"melt:1", "corrupt:1", "corrupt:x:1", "swap:0@nowhere", "half:0:1:2"}) {
    EXPECT_ANY_THROW(Injection::parse(text)) << text;
  }
}

}  // namespace
}  // namespace weft
