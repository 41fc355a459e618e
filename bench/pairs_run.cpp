#include "bench/pairs_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>

#include "bench/bound_case.hpp"
#include "bench/clock_sync.hpp"
#include "bench/launch.hpp"
#include "bench/noise.hpp"
#include "bench/pair_options.hpp"
#include "bench/pair_row.hpp"
#include "bench/pair_table.hpp"
#include "bench/pair_trial.hpp"
#include "bench/ranks.hpp"
#include "bench/run_frame.hpp"
#include "bench/tournament.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

constexpr int kOperationsPerSet = 10;       // windows that a pair prepares, both ways
constexpr Bytes kScratch = Bytes{1} << 20;  // a transport's own needs
// A test may take this much of --max-time, while ranks without a partner make no progress.
constexpr double kIdleShare = 2;

/// One transport, opened for one message size.
struct OpenTransport {
  const TransportInfo* info = nullptr;
  std::string refused{};
  std::unique_ptr<Session> session{};
  std::unique_ptr<PairLink> link{};
};

class PairsRun {
 public:
  PairsRun(const PairOptions& options, Bootstrap& bootstrap)
      : options_(options),
        bootstrap_(bootstrap),
        frame_(options.common, bootstrap),
        noise_(bootstrap),
        ports_(bootstrap),
        rule_(stopping_rule(options.common)),
        watchdog_(frame_.watch(patience(), [this] { return activity(); })) {}

  ExitCode go() {
    return frame_.to_the_end([this] {
      prepare();
      for (const Bytes size : options_.common.sizes) measure_size(size);
      return verdict();
    });
  }

 private:
  double patience() const {
    const double idle = bootstrap_.size() > 2 ? kIdleShare * options_.common.max_time : 0;
    return options_.common.timeout + idle;
  }

  std::string activity() const {
    const std::lock_guard lock(activity_mutex_);
    return activity_;
  }
  void set_activity(std::string text) {
    const std::lock_guard lock(activity_mutex_);
    activity_ = std::move(text);
  }

  void prepare() {
    const int ranks = bootstrap_.size();
    together(bootstrap_, [&] {
      check_launch(ranks, 1);
      if (ranks < 2) {
        fail_usage("weft-pairs needs two ranks at least; start it with 'mpiexec -n 2 weft-pairs'");
      }
      choice_ = choose_transports(options_.common, bootstrap_);
      rounds_ = options_.pairs_file.empty()
                    ? tournament(ranks)
                    : disjoint_rounds(read_pairs(options_.pairs_file, ranks));
    });
    if (!choice_.missing.empty()) print_error(choice_.missing);
    if (options_.one_at_a_time) rounds_ = one_by_one(rounds_);
    cpus_ = share_cpus(bootstrap_);
    const RunFacts facts = frame_.gather_facts(1);
    last_level_cache_ = facts.inventory.front().last_level_caches;
    copy_limit_ = facts.copy_limit_GBps;
    paths_ = output_paths(options_.common, "pairs");
    frame_.open_files(paths_, facts);
    if (bootstrap_.rank() == 0) warn_of_binding(cpus_);
  }

  static std::vector<PairRound> one_by_one(const std::vector<PairRound>& rounds) {
    std::vector<PairRound> single;
    for (const PairRound& round : rounds) {
      for (const RankPair& pair : round) single.push_back({pair});
    }
    return single;
  }

  std::vector<Rank> peers() const {
    std::set<Rank> found;
    for (const PairRound& round : rounds_) {
      for (const RankPair& pair : round) {
        if (pair.a == bootstrap_.rank()) found.insert(pair.b);
        if (pair.b == bootstrap_.rank()) found.insert(pair.a);
      }
    }
    return {found.begin(), found.end()};
  }

  PairShape shape_of(Bytes size) {
    PairShape shape{size, window_of(options_, size), 1, options_.common.hot};
    const auto hosts = distinct_real_hosts(bootstrap_.hosts());
    const Bytes ranks =
        (bootstrap_.size() + static_cast<int>(hosts.size()) - 1) / static_cast<int>(hosts.size());
    const auto steps = peers().size() * static_cast<std::size_t>(kOperationsPerSet * shape.window);
    const int mine = rotation_sets(2 * ranks * PairBuffers::set_bytes(shape), last_level_cache_,
                                   steps, shape.hot);
    shape.sets =
        static_cast<int>(-bootstrap_.max(-mine));  // the fewest: both ends take turns alike
    return shape;
  }

  void measure_size(Bytes size) {
    set_activity(fmt::format("setting up messages of {}", size_text(size)));
    watchdog_.beat();
    const PairShape shape = shape_of(size);
    std::unique_ptr<Arena> arena;
    std::unique_ptr<PairBuffers> buffers;
    together(bootstrap_, [&] {
      const Bytes room = static_cast<Bytes>(choice_.transports.size()) * kScratch;
      arena = std::make_unique<Arena>(MemorySpace::host, PairBuffers::bytes(shape), room);
      buffers = std::make_unique<PairBuffers>(shape, *arena);
    });
    std::vector<OpenTransport> open;
    for (const TransportInfo* info : choice_.transports)
      open.push_back(open_transport(*info, *arena, *buffers));
    for (int round = 1; round <= options_.rounds; ++round) {
      for (const PairRound& pairs : rounds_) measure_pairs(pairs, round, open, *buffers);
    }
    for (OpenTransport& transport : open) write_queue_pairs(transport, shape);
  }

  /// All that went over them with messages of this size, as of the first pair's first cell.
  void write_queue_pairs(OpenTransport& transport, const PairShape& shape) {
    if (!transport.refused.empty() || paths_.queue_pairs.empty()) return;
    const QueuePairs all = gather_queue_pairs(transport.session->queue_pairs(), bootstrap_);
    if (all.empty()) return;
    const RankPair first = rounds_.front().front();
    const PairCell cell{*transport.info, kPairTests[0], shape, 1, first.a, first.b};
    together(bootstrap_, [&] {
      if (RowWriter* writer = frame_.writer())
        writer->write_queue_pairs(cell.id(bootstrap_.size()), all, bootstrap_.hosts());
    });
  }

  OpenTransport open_transport(const TransportInfo& info, Arena& arena,
                               const PairBuffers& buffers) {
    OpenTransport open{.info = &info};
    try {
      together(bootstrap_, [&] {
        open.session = info.open(
            bootstrap_, arena,
            session_options(options_.common, info.algorithms.front(), cpus_.oversubscribed));
      });
      together(bootstrap_, [&] {
        open.link = std::make_unique<PairLink>(*open.session, buffers, bootstrap_.size(),
                                               bootstrap_.rank(), peers());
      });
      together(bootstrap_, [&] { open.session->commit(); });
    } catch (const AgreedError& error) {
      open.refused = error.what();
    }
    watchdog_.beat();
    return open;
  }

  /// The transports of one test follow each other at once: what the machine does meanwhile changes
  /// little between them.
  void measure_pairs(const PairRound& pairs, int round, std::vector<OpenTransport>& open,
                     PairBuffers& buffers) {
    for (const PairTest test : kPairTests) {
      for (const bool forth : {true, false}) {
        PairRound directed = pairs;
        if (!forth) {
          for (RankPair& pair : directed) std::swap(pair.a, pair.b);
        }
        for (OpenTransport& transport : open) {
          const auto cell = [&](Rank from, Rank to) {
            return PairCell{*transport.info, test, buffers.shape(), round, from, to};
          };
          if (transport.refused.empty()) {
            measure_together(directed, cell, transport, buffers);
          } else {
            refuse(directed, cell, transport.refused);
          }
        }
      }
    }
  }

  /// What came of a test of some pairs at the same time, in their order.
  struct Attempt {
    std::vector<PairResult> results{};
    PairAttempt how{};
    bool wrong() const {
      return std::ranges::any_of(results, [](const PairResult& one) { return !one.why.empty(); });
    }
  };

  using CellOf = std::function<PairCell(Rank from, Rank to)>;

  /// The pair that this rank belongs to, if any.
  const RankPair* own(const PairRound& pairs) const {
    const Rank me = bootstrap_.rank();
    const auto found = std::ranges::find_if(
        pairs, [me](const RankPair& pair) { return pair.a == me || pair.b == me; });
    return found == pairs.end() ? nullptr : &*found;
  }

  /// One test of all pairs at the same time, from `a` to `b`. Where it was noisy, again; a wrong
  /// result is never made good by another attempt.
  void measure_together(const PairRound& pairs, const CellOf& cell, OpenTransport& transport,
                        PairBuffers& buffers) {
    const RankPair* mine = own(pairs);
    const RankPair shown = mine ? *mine : pairs.front();
    const PairCell doing = cell(shown.a, shown.b);
    set_activity(
        fmt::format("{} {}", mine ? "measuring" : "waiting for", doing.id(bootstrap_.size())));
    Attempt best;
    std::vector<std::vector<RowWriter::Sample>> samples(pairs.size());
    int attempts = 0;
    double spent_us = 0;
    do {
      const double start_us = monotonic_us();
      Attempt attempt = try_together(pairs, doing.test, transport, buffers);
      spent_us = bootstrap_.max(spent_us + monotonic_us() - start_us);
      ++attempts;
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        for (RowWriter::Sample& sample : attempt.results[i].samples) {
          sample.attempt = attempts;
          samples[i].push_back(sample);
        }
      }
      if (attempts == 1 || attempt.wrong() ||
          attempt.how.noise.badness() < best.how.noise.badness()) {
        best = std::move(attempt);
      }
    } while (!best.wrong() &&
             worth_another_attempt(best.how.noise, attempts, spent_us, rule_.max_time_us));
    best.how.attempts = attempts;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const PairCell measured = cell(pairs[i].a, pairs[i].b);
      const PairResult& result = best.results[i];
      Row row = pair_row(row_context(), measured);
      add_result(row, row_context(), measured, result, best.how);
      ++measured_;
      wrong_ += !result.why.empty();
      write(std::move(row), samples[i]);
    }
  }

  Attempt try_together(const PairRound& pairs, PairTest test, OpenTransport& transport,
                       PairBuffers& buffers) {
    const RankPair* mine = own(pairs);
    bootstrap_.barrier();  // so that nothing else is on the ports
    ports_.start();
    noise_.start();
    const WorkPosted before = work_of(transport.session->queue_pairs());
    PairResult result;
    if (mine) {
      PairTrial trial(bootstrap_, *transport.session, buffers, *transport.link, rule_, clock_,
                      watchdog_);
      result =
          mine->a == bootstrap_.rank() ? trial.begin(test, mine->b) : trial.answer(test, mine->a);
    }
    const auto all = bootstrap_.all_gather(
        std::span<const std::byte>(result.packed(!options_.common.samples.empty())));
    Attempt attempt{.how = {.noise = noise_.stop(), .pairs = pairs.size()}};
    attempt.how.ports.hosts = gather_ports(bootstrap_, ports_.lap());
    attempt.how.ports.posted =
        gather_work(bootstrap_, work_of(transport.session->queue_pairs()) - before);
    watchdog_.beat();
    for (const RankPair& pair : pairs) {
      PairResult of_pair = PairResult::unpacked(all[static_cast<std::size_t>(pair.a)]);
      const PairResult other = PairResult::unpacked(all[static_cast<std::size_t>(pair.b)]);
      if (of_pair.why.empty()) of_pair.why = other.why;
      attempt.results.push_back(std::move(of_pair));
    }
    return attempt;
  }

  void refuse(const PairRound& pairs, const CellOf& cell, const std::string& why) {
    for (const RankPair& pair : pairs) {
      Row row = pair_row(row_context(), cell(pair.a, pair.b));
      row.set("skip_reason", why);
      write(std::move(row), {});
    }
  }

  PairRowContext row_context() const {
    return {options_, bootstrap_, cpus_, frame_.launch_id(), copy_limit_};
  }

  void write(Row row, const std::vector<RowWriter::Sample>& samples) {
    together(bootstrap_, [&] {
      if (RowWriter* writer = frame_.writer()) {
        writer->write(row);
        if (!samples.empty()) writer->write_samples(std::string(row.get("cell_id")), samples);
      }
    });
    rows_.push_back(std::move(row));
  }

  Ending verdict() {
    const bool first = bootstrap_.rank() == 0;
    if (first) {
      fmt::print("\nPairs of {} ranks, hosts {}\n\n{}", bootstrap_.size(),
                 rows_.front().get("host_names"), pair_tables(rows_, bootstrap_.size()));
      const auto name_of = [](const Row& row) { return std::string(row.get("cell_id")); };
      if (const std::string lost = losses_text(rows_, name_of); !lost.empty())
        fmt::print("{}\n", lost);
      for (const std::string& file : named_files(paths_)) fmt::print("Written: {}\n", file);
      std::fflush(stdout);
    }
    if (wrong_ > 0) return {ExitCode::failed, "a verification failed"};
    if (measured_ > 0) {
      return choice_.missing.empty() ? Ending{} : Ending{ExitCode::usage, choice_.missing};
    }
    const std::string why = "no cell could run: " + std::string(rows_.front().get("skip_reason"));
    print_error(why);
    return {ExitCode::usage, why};
  }

  const PairOptions& options_;
  Bootstrap& bootstrap_;
  RunFrame frame_;
  NoiseMeter noise_;
  PortMeter ports_;
  TickClock clock_{monotonic_us};
  StoppingRule rule_;
  TransportChoice choice_;
  std::vector<PairRound> rounds_;
  CpuShare cpus_;
  Bytes last_level_cache_ = 0;
  double copy_limit_ = 0;
  OutputPaths paths_;
  std::vector<Row> rows_;
  int measured_ = 0, wrong_ = 0;
  mutable std::mutex activity_mutex_;  // the watchdog's thread reads
  std::string activity_ = "starting";
  Watchdog watchdog_;  // last: it looks at all the others
};

}  // namespace

int run_pairs(int argc, char** argv) {
  return report_errors([&](bool first) {
    PairOptions options;
    if (!parse_pair_options(argc, argv, options, first)) return 0;
    return static_cast<int>(run_on_ranks(
        options.common, [&](Bootstrap& bootstrap) { return PairsRun(options, bootstrap).go(); }));
  });
}

}  // namespace weft
