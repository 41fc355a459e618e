// Program: what one rank computes and sends, as data. Made by a pattern; executed, printed,
// verified, and accounted by others. Start reading here.
//
//   Program p;
//   TensorId x = p.add(Tensor{.name = "X", .dtype = DType::f32, .rows = 128, .cols = 64, ...});
//   StepId g = p.then(Step{.op = Compute{...}, .label = "Y=XA"});
//   p.then(Step{.op = Collective{...}, .stream = StreamRole::comm, .after = {{g}}, ...});
//   validate(p);                      // one rank: operands exist, shapes fit, dependencies point
//   back validate_world(all_programs);     // all ranks: matched, no deadlock with zero buffering
//
// Wrong: to rely on the order of two steps on different streams without `after`. Only steps of one
// stream run in the order of the list.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "patterns/types.hpp"

namespace weft {

using TensorId = int;
using GroupId = int;
using StepId = int;  // index in the list (body) that holds the step

/// A set of ranks as an affine set: base + sum over axes of i*stride, first axis fastest. Any group
/// of any rank layout has this form, so a group of 200,000 ranks costs a few bytes.
struct RankSet {
  struct Axis {
    int count = 1;
    int stride = 1;
    bool operator==(const Axis&) const = default;
  };
  Rank base = 0;
  std::vector<Axis> axes{};

  int size() const;
  Rank at(int index) const;       // index-th member, 0 <= index < size()
  int index_of(Rank rank) const;  // -1 if `rank` is no member
  std::vector<Rank> members() const;
  bool operator==(const RankSet&) const = default;
};

/// A communicator that a program uses: the ranks and the dimension they belong to.
struct Group {
  Dimension dim = Dimension::none;
  RankSet ranks{};
  bool operator==(const Group&) const = default;
};

/// How a tensor is filled before the first step. Contents depend on (seed, name, global slot,
/// global element) alone, so any rank can make any shard and the unsharded reference.
enum class Fill : std::uint8_t {
  none,  // written by a step before it is read
  zero,
  uniform,    // uniform in [-scale, scale]
  positive,   // uniform in [0, scale]
  constant,   // every element is `scale`
  values,     // integers listed in Tensor::values (i32 tensors)
  zipf_bias,  // element j of a row vector is -scale*ln(1 + global column): softmax of it is ~
              // 1/(1+j)^scale
};
std::string_view to_string(Fill fill);

/// A two-dimensional row-major tensor of one rank: `slots` copies of [rows x cols]. The local block
/// lies at (row_offset, col_offset) of a global tensor [global_rows x global_cols]; slot s is the
/// global slot slot_offset + s. Shards of one tensor share its name; replicas have equal offsets.
struct Tensor {
  std::string name{};
  DType dtype = DType::f32;
  Index rows = 0, cols = 0;                // local; for run-time counts: the declared capacity
  Index global_rows = 0, global_cols = 0;  // 0: as local
  Index row_offset = 0, col_offset = 0;
  int slots = 1;
  int slot_offset = 0;
  Fill fill = Fill::none;
  double scale = 1.0;
  std::vector<std::int32_t> values{};  // for Fill::values: rows*cols*slots integers
  bool check = false;                  // compared with the unsharded reference after an iteration
  bool persistent =
      true;  // weights, gradients, optimizer state (else activation, scratch): for the memory sheet

  Index elements() const { return rows * cols; }  // of one slot
  Bytes bytes() const { return elements() * slots * size_of(dtype); }
};

/// Operand of a step: a block [rows x cols] with leading dimension ld, `offset` elements into a
/// slot. The slot used in iteration (i, j) of two nested repeats (outermost first) is (slot +
/// slot_per[0]*i + slot_per[1]*j) modulo the tensor's slots.
struct View {
  TensorId tensor = -1;
  int slot = 0;
  std::array<int, 2> slot_per{0, 0};
  Index offset = 0;
  Index rows = 0, cols = 0, ld = 0;

  Index elements() const { return rows * cols; }
  bool contiguous() const { return ld == cols || rows <= 1; }
};

/// Compute operations. Operands are listed as in -> out; all arithmetic is f32 (f32 accumulation),
/// storage is the tensor's dtype. T = rows (tokens). i32 operands are marked (i).
enum class ComputeKind : std::uint8_t {
  gemm,  // A, B -> C              C (+)= op(A)*op(B); op by trans_a, trans_b; (+) by accumulate
  grouped_gemm,     // A, B, counts(i) -> C   rows of A come in segments: counts[s] rows for s =
                    // 0..segments-1, back to
                    //                        back; segment s uses expert s % experts: C_seg =
                    //                        A_seg*op(B_e), B = [experts*k x n] stacked
  grouped_wgrad,    // A, D, counts(i) -> G  G_e (+)= sum over segments of e of A_seg^T*D_seg, G =
                    // [experts*k x n] stacked
  bias,             // Z, b[1xn] -> Y         Y = Z + b (row vector)
  activation,       // Z -> Y  |  swiglu: Zg, Zu -> Y = silu(Zg)*Zu
  activation_grad,  // dY, Z -> dZ  |  swiglu: dY, Zg, Zu -> dZg, dZu
  softmax,          // X -> Y                 over each row
  softmax_grad,     // dY, Y -> dX
  layer_norm,       // X, gamma[1xh], beta[1xh] -> Y     eps = 1e-5
  top_k,  // P[TxE] -> idx(i)[Txk], W[Txk]     the k largest of a row, ties to the smaller index; W
          // renormalised to
          //                        sum 1 when `normalize`
  top_k_grad,    // dW[Txk], idx(i), P -> dP[TxE]     adjoint of the selection (and renormalisation)
  count_tokens,  // idx(i)[Txk] -> counts(i)[1xE]     how many selections each expert has
  permute,  // X[Txh], idx(i)[Txk] -> S[T*k x h]  row copies ordered by expert, then token, then
            // choice
  permute_grad,    // dS, idx(i) -> dX                  dX_t (+)= sum over its choices of dS rows
  unpermute,       // S[T*k x h], idx(i), W[Txk] -> Y   Y_t = sum_c W[t,c]*S[row(t,c)]
  unpermute_grad,  // dY, S, idx(i), W -> dS, dW      dS[row] = W*dY_t ; dW[t,c] = dY_t . S[row]
  relayout,        // G -> Y[TxF]            G holds `parts` blocks [T x width_p] one after another
                   // (widths in `counts`):
                   //                        block p becomes columns of Y
  split_layout,    // Y[TxF] -> G            the inverse of relayout
  reduce,          // S -> Y                 S = n*rows x cols stacked: Y = sum over n blocks
  column_sum,      // X -> y[1xn]            sum over rows (bias gradient)
  copy,            // X -> Y                 converts dtype where they differ
  scale,           // X -> Y                 Y = factor*X
  add,             // X, Z -> Y              Y = X + Z
  sgd,             // W, g -> W              W -= lr*g          (W appears in both lists)
  adam,  // W, g, m, v -> W, m, v  one Adam step, b1 .9, b2 .999, eps 1e-8, step number `step`
};
std::string_view to_string(ComputeKind kind);

struct Compute {
  ComputeKind kind = ComputeKind::copy;
  std::vector<View> in{}, out{};
  bool trans_a = false, trans_b = false, accumulate = false, normalize = false;
  Activation act = Activation::identity;
  double factor = 1.0;          // scale's factor, sgd's and adam's learning rate
  int experts = 0;              // grouped_*: experts in B; top_k family: experts in all
  int step = 1;                 // adam: which step this is, from 1
  std::vector<Index> counts{};  // relayout: widths
  // For the reference only: this sum is really made by partial sums on `ways` ranks that are then
  // reduced (and rounded to storage on the way), so the error bound of the check must allow for
  // that.
  int ways = 1;
  // How many floating-point operations, 2mnk for a gemm (capacity for run-time counts), 0 for
  // moves.
  double flops() const;
};

enum class CollectiveKind : std::uint8_t {
  all_gather,      // in: counts[me] elements -> out: sum(counts), in rank order
  all_reduce,      // in -> out, equal sizes; sum
  reduce_scatter,  // in: sum(counts) -> out: counts[me]; sum
  broadcast,       // in (root) -> out (all)
  all_to_all_v,    // in: send counts in group order -> out: recv counts in group order
};
std::string_view to_string(CollectiveKind kind);

/// Counts known only at run time: i32 tensors on the host with one entry per (peer, item); the rows
/// sent to peer p are the sum of its `per_peer` consecutive entries; each row is `row_elements`
/// elements.
struct CountsRef {
  View send{}, recv{};
  int per_peer = 1;
  Index row_elements = 1;
};

struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  GroupId group = 0;
  View in{}, out{};  // contiguous; for all_reduce never the same memory (see METHOD in README)
  std::vector<Index>
      counts{};  // all_gather, reduce_scatter: elements per member. all_to_all_v: send counts
  std::vector<Index> recv_counts{};     // all_to_all_v: recv counts
  std::optional<CountsRef> run_time{};  // all_to_all_v with run-time counts; `counts` stay empty
  int root = 0;                         // broadcast: index in the group
};

struct SendRecv {
  bool send = true;
  GroupId group = 0;
  int peer = 0;  // index in the group
  View data{};   // contiguous
};

/// All members are posted before any is waited for.
struct PostedTogether {
  std::vector<SendRecv> members{};
};

struct Step;
/// `body` done `count` times. Dependencies inside the body name steps of the body; `distance` d
/// names the instance of d rounds before (ignored in the first d rounds). Nesting: two levels.
struct Repeat {
  int count = 1;
  std::vector<Step> body;
};

struct Dependency {
  StepId step = -1;
  int distance = 0;
};

using Op = std::variant<Compute, Collective, SendRecv, PostedTogether, Repeat>;

struct Step {
  Op op;
  StreamRole stream = StreamRole::compute;
  std::vector<Dependency> after{};  // beyond the order of its own stream
  std::string label{};              // "dW2 = X2^T dZ2": what a person calls it
  Dimension dim = Dimension::none;
  Direction direction = Direction::forward;
};

struct Program {
  std::vector<Tensor> tensors;
  std::vector<Group> groups;
  std::vector<Step>
      prologue;  // done once before an iteration is timed or checked (stored activations, ...)
  std::vector<Step> steps;  // one iteration; repeatable
  std::vector<std::string>
      notes;  // what a reader of --show-plan should know (padding, drops, assumptions)

  TensorId add(Tensor tensor);    // returns its id; fills global sizes left 0
  GroupId add(Group group);       // reuses an equal group
  StepId then(Step step);         // appends to `steps`
  View whole(TensorId id) const;  // slot 0, everything
};

/// A view on every element of one slot. Both views below have `slot` added by the caller where
/// needed.
View whole(const Tensor& tensor, TensorId id, int slot = 0);
View rows_of(const Tensor& tensor, TensorId id, Index first, Index count, int slot = 0);

/// A leaf step with its slots resolved. `after`: indices into the flat list, only what the order of
/// the streams does not imply already (so at most one, on the other stream).
struct FlatStep {
  Op op;  // never Repeat; views have slot set and slot_per zero
  StreamRole stream = StreamRole::compute;
  std::vector<int> after;
  std::string label;
  Dimension dim = Dimension::none;
  Direction direction = Direction::forward;
  StepId origin = -1;  // index in the top-level list
  std::array<int, 2> round{0, 0};
};

/// Expands the repeats of a list of steps. A dependency on a Repeat is one on all last steps of its
/// streams.
std::vector<FlatStep> flatten(const Program& program, const std::vector<Step>& steps);

/// Calls fn(step, times) for every leaf step without expanding: `times` is the product of enclosing
/// counts.
template <class Fn>
void for_each_leaf(const std::vector<Step>& steps, Fn&& fn, std::int64_t times = 1) {
  for (const Step& step : steps) {
    if (const auto* repeat = std::get_if<Repeat>(&step.op)) {
      for_each_leaf(repeat->body, fn, times * repeat->count);
    } else {
      fn(step, times);
    }
  }
}

/// Checks one rank's program: operands exist and lie inside their tensors, shapes of each operation
/// fit, counts have one entry per member, dependencies point to earlier steps. Throws Error(usage)
/// naming step and cause.
void validate(const Program& program);

/// Finds races between the two streams of a valid program: steps of different streams that touch
/// the same memory, one of them writing, without an `after` between them. Throws Error(usage)
/// naming both.
void validate_streams(const Program& program);

/// After validate() and validate_streams() of each rank, plays all ranks together with zero
/// buffering (a send ends only with its receive, a collective only when all members have entered
/// it) and FIFO streams. programs[r] is rank r's. Throws Error(usage) on a deadlock (naming each
/// rank and the step it waits in), an unmatched or wrongly sized operation, or members that
/// disagree on order.
void validate_world(const std::vector<Program>& programs);

/// Readable listing: tensors, groups, steps with shapes and dependencies.
std::string to_text(const Program& program);
/// The same as JSON text (one object: tensors, groups, prologue, steps, notes).
std::string to_json(const Program& program);

}  // namespace weft
