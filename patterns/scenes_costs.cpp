// The scenes about traffic and its cost: what each pattern asks of the network (S13), and tensor
// parallelism inside a node against across nodes (S18).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "patterns/builder.hpp"
#include "patterns/error.hpp"
#include "patterns/scenes.hpp"

namespace weft {

namespace {

void as_given(PatternOptions&, LayoutSpec&) {}

// ---- S13 ----

constexpr Bytes kPacketPayload = 4096;  // the usual path MTU of RDMA

/// All ranks in the pattern's own dimension, as a run without layout options has them.
Layout layout_of(const Pattern& pattern, int world) {
  LayoutSpec spec;
  switch (pattern.dim) {
    case Dimension::tp:
      spec.tp = world;
      break;
    case Dimension::pp:
      spec.pp = world;
      break;
    case Dimension::ep:
      spec.ep = world;
      spec.etp = 1;
      break;
    default:
      break;
  }
  return Layout::make(spec, world);
}

/// A label without its numbers: "AllReduce bucket 3" and "AllReduce bucket 4" are of one kind.
std::string kind_of(std::string label) {
  std::erase_if(label, [](char c) { return c >= '0' && c <= '9'; });
  return label;
}

/// Operations of the first and the last rank, each kind once: buckets and micro-batches are alike.
std::vector<OperationTraffic> distinct_operations(const Pattern& pattern, const ModelShape& model,
                                                  const Layout& layout,
                                                  const PatternOptions& options) {
  std::vector<OperationTraffic> kept;
  std::set<std::pair<std::string, Direction>> seen;
  for (Rank rank : {0, layout.world() - 1}) {
    for (OperationTraffic& op : operations_of(pattern.make(model, layout, options, rank), rank)) {
      if (seen.emplace(kind_of(op.label), op.direction).second) kept.push_back(std::move(op));
    }
  }
  return kept;
}

std::string needs_of(std::string_view operation) {
  const bool reduces = operation == "all_reduce" || operation == "reduce_scatter";
  return reduces ? "reliable, exactly once (a sum), data before its flag"
                 : "reliable, data before its flag";
}

/// Flows of a sender and entropy of all flows, equal ones: log2 of their number.
std::string flows_of(const OperationTraffic& op) {
  const int n = op.group.ranks.size();
  if (op.operation == "send") {
    return fmt::format("1 flow a sender, to its neighbour, {} messages an iteration", op.times);
  }
  if (n < 2) return "no flows: the group has 1 rank";
  const std::string direct = fmt::format("direct {} of {} ({:.2f} bits)", n - 1, op.sent / (n - 1),
                                         std::log2(n * (n - 1.0)));
  const bool ring = op.operation != "all_to_all_v";
  return fmt::format("flows a sender (entropy of all): {}{}",
                     ring ? fmt::format("ring 1 of {} ({:.2f} bits), ", op.sent, std::log2(n)) : "",
                     direct);
}

void describe(SceneText& text, const Pattern& pattern, const OperationTraffic& op) {
  text.row(fmt::format("{} {}", pattern.name, to_string(op.direction)),
           fmt::format("{} ({}) over {} of {} ranks", op.label, op.operation, to_string(op.dim),
                       op.group.ranks.size()));
  text.row("", fmt::format("M = {}, a rank sends {}{}", bytes_text(op.message), bytes_text(op.sent),
                           op.run_time ? " if balanced" : ""));
  text.row("", flows_of(op));
  text.row("", fmt::format("{} packets of up to {} bytes a sender; needs: {}",
                           (op.sent + kPacketPayload - 1) / kPacketPayload, kPacketPayload,
                           needs_of(op.operation)));
}

void describe(SceneText& text, const Pattern& pattern, const ModelShape& model, int world,
              PatternOptions options) {
  for (Direction direction : pattern.directions) {
    options.direction = direction;
    try {
      const Layout layout = layout_of(pattern, world);
      const auto operations = distinct_operations(pattern, model, layout, options);
      for (const OperationTraffic& op : operations) describe(text, pattern, op);
      if (operations.empty()) {
        text.row(fmt::format("{} {}", pattern.name, to_string(direction)), "sends nothing");
      }
    } catch (const Error& error) {
      text.row(std::string(pattern.name), fmt::format("not with these settings: {}", error.what()));
      return;
    }
  }
}

std::string text_s13(const ModelShape& model, const Layout& layout, const PatternOptions& options) {
  SceneText text("S13", "what each pattern asks of the network");
  text.line(fmt::format("model {}, {} ranks in the pattern's own dimension, activations in {}",
                        model.name, layout.world(), to_string(options.dtype)));
  text.section(
      "Per operation of a rank, from the programs (of buckets and micro-batches the first)");
  for (const Pattern* pattern : patterns()) {
    describe(text, *pattern, model, layout.world(), options);
  }
  text.section("Measured by the run");
  text.line("messages per second, duty cycle, bursts, link utilisation: the traffic sheet below");
  text.line(
      "reliability and order are needs of the schedule; losslessness is a choice of the transport");
  return text.text();
}

// ---- S18 ----

constexpr double kNvlinkBoth = 900e9;  // bytes/s, both directions together, as the source gives it
constexpr double kNvlinkOneWay = 450e9;  // of which a transfer has half
constexpr double kNicOneWay = 50e9;      // 400 Gbit/s
constexpr double kMatrixRate = 400e12;  // flop/s of a gemm that a large accelerator reaches in bf16

std::string microseconds(double seconds) { return fmt::format("{:.1f} us", seconds * 1e6); }

struct Cost {
  std::string_view name;
  double sent;            // bytes of a rank
  double saved;           // seconds of gemm that the split saves: 2*T*h*f*(1-1/t)/F
  double width_per_rate;  // bytes/s / (flop/s) -> the width from which the split pays

  void write(SceneText& text, std::string_view width) const {
    text.section(fmt::format("{}: a rank sends {} and saves {} of gemm", name,
                             bytes_text(static_cast<Bytes>(sent)), microseconds(saved)));
    text.row("in the node", fmt::format("{} at 900 GB/s", microseconds(sent / kNvlinkBoth)),
             fmt::format("{} at 450 GB/s: 900 is both directions together",
                         microseconds(sent / kNvlinkOneWay)));
    text.row("across nodes", microseconds(sent / kNicOneWay) + " at 50 GB/s (400 Gbit/s)");
    text.row("pays from", fmt::format("{} = {:.0f} in the node, {:.0f} across nodes", width,
                                      width_per_rate * kMatrixRate / kNvlinkOneWay,
                                      width_per_rate * kMatrixRate / kNicOneWay));
  }
};

/// The split of a linear saves 2*T*h*f*(1-1/t)/F. AllReduce takes 2*T*h*e*(1-1/t)/B, so it pays
/// where f > e*F/B; AllGather takes T*f*e*(1-1/t)/B, so it pays where h > e*F/(2*B). The number of
/// tokens and of ranks drop out.
std::string text_s18(const ModelShape& model, const Layout& layout, const PatternOptions& options) {
  const double tokens = static_cast<double>(tokens_of(model, options));
  const double h = static_cast<double>(model.hidden), f = static_cast<double>(model.ffn);
  const double e = static_cast<double>(size_of(options.dtype));
  const int ways = std::max(2, layout.size(Dimension::tp));
  const double off = 1.0 - 1.0 / ways;
  SceneText text("S18", "cost of tensor parallelism inside a node and across nodes");
  text.line(fmt::format(
      "model {}, T = {}, h = {}, f = {}, tp {}, {} bytes an element; on paper, latency left out",
      model.name, tokens, h, f, ways, e));
  const double saved = 2 * tokens * h * f * off / kMatrixRate;
  Cost{"row-parallel, AllReduce", 2 * tokens * h * e * off, saved, e}.write(text, "f");
  Cost{"column-parallel, AllGather", tokens * f * e * off, saved, e / 2}.write(text, "h");
  text.section("Measured");
  text.line(
      "the same pattern on both: --transport shm (or nvlink) and --transport mpi (or verbs) with "
      "ranks on two hosts");
  return text.text();
}

}  // namespace

std::vector<Scene> cost_scenes() {
  constexpr std::string_view s18 = "cost of tensor parallelism in a node and across nodes";
  return {
      {"S13", "*", "what each pattern asks of the network", 2, "", as_given, text_s13},
      {"S18", "tp-allgather", s18, 2, "", as_given, text_s18},
      {"S18", "row-allreduce", s18, 2, "", as_given, text_s18},
  };
}

}  // namespace weft
