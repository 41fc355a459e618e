#include "patterns/program_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weft {

namespace {

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  return fmt::format("{}", fmt::join(parts, between));
}

std::string views_text(const Program& program, const std::vector<View>& views) {
  std::vector<std::string> parts;
  for (const View& view : views) parts.push_back(view_text(program, view));
  return joined(parts, ", ");
}

std::string group_name(const Program& program, GroupId id) {
  const bool known = id >= 0 && id < static_cast<GroupId>(program.groups.size());
  return known ? group_text(program.groups[static_cast<std::size_t>(id)])
               : fmt::format("group {}", id);
}

/// Equal counts as "4 x 128", others listed, many of them shortened.
std::string counts_text(const std::vector<Index>& counts) {
  if (counts.empty()) return "none";
  bool equal = true;
  for (Index count : counts) equal = equal && count == counts.front();
  if (equal) return fmt::format("{} x {}", counts.size(), counts.front());
  constexpr std::size_t shown = 16;
  if (counts.size() <= shown) return fmt::format("{}", fmt::join(counts, " "));
  return fmt::format("{} ... ({} counts)", fmt::join(counts.begin(), counts.begin() + shown, " "),
                     counts.size());
}

std::string text_of(const Program& program, const Compute& op) {
  std::string text = fmt::format("{} {} -> {}", to_string(op.kind), views_text(program, op.in),
                                 views_text(program, op.out));
  if (op.trans_a) text += " trans_a";
  if (op.trans_b) text += " trans_b";
  if (op.accumulate) text += " accumulate";
  if (op.normalize) text += " normalize";
  if (op.act != Activation::identity) text += fmt::format(" {}", to_string(op.act));
  if (op.factor != 1.0) text += fmt::format(" factor {}", op.factor);
  if (op.experts > 0) text += fmt::format(" experts {}", op.experts);
  if (!op.counts.empty()) text += fmt::format(" widths {}", counts_text(op.counts));
  return text;
}

std::string text_of(const Program& program, const Collective& op) {
  std::string text =
      fmt::format("{} {} -> {} over {}", to_string(op.kind), view_text(program, op.in),
                  view_text(program, op.out), group_name(program, op.group));
  if (!op.counts.empty()) text += fmt::format(" counts {}", counts_text(op.counts));
  if (!op.recv_counts.empty()) text += fmt::format(" recv {}", counts_text(op.recv_counts));
  if (op.kind == CollectiveKind::broadcast) text += fmt::format(" root {}", op.root);
  if (op.run_time) {
    text += fmt::format(" counts at run time: send {}, recv {}, rows of {}",
                        view_text(program, op.run_time->send),
                        view_text(program, op.run_time->recv), op.run_time->row_elements);
  }
  return text;
}

std::string text_of(const Program& program, const SendRecv& op) {
  std::string peer = fmt::format("member {}", op.peer);
  if (op.group >= 0 && op.group < static_cast<GroupId>(program.groups.size())) {
    const RankSet& ranks = program.groups[static_cast<std::size_t>(op.group)].ranks;
    if (op.peer >= 0 && op.peer < ranks.size()) peer = fmt::format("rank {}", ranks.at(op.peer));
  }
  return fmt::format("{} {} {} {} ({})", op.send ? "send" : "recv", view_text(program, op.data),
                     op.send ? "to" : "from", peer, group_name(program, op.group));
}

std::string text_of(const Program& program, const PostedTogether& op) {
  std::vector<std::string> parts;
  for (const SendRecv& member : op.members) parts.push_back(text_of(program, member));
  return fmt::format("together: {}", joined(parts, "; "));
}

std::string text_of(const Program&, const Repeat& op) {
  return fmt::format("repeat {} times", op.count);
}

std::string dependencies_text(const std::vector<Dependency>& after) {
  std::vector<std::string> parts;
  for (const Dependency& d : after) {
    parts.push_back(d.distance == 0 ? fmt::format("{}", d.step)
                                    : fmt::format("{} of {} rounds before", d.step, d.distance));
  }
  return parts.empty() ? "" : fmt::format("  after {}", joined(parts, ", "));
}

void append_steps(const Program& program, const std::vector<Step>& steps, std::size_t indent,
                  std::string& text) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const auto* repeat = std::get_if<Repeat>(&step.op);
    text += fmt::format("{:{}}{:>3} ", "", indent, i);
    if (!repeat) text += fmt::format("{:<7} ", to_string(step.stream));
    text += op_text(program, step.op);
    if (!step.label.empty()) text += fmt::format("  '{}'", step.label);
    if (step.dim != Dimension::none)
      text += fmt::format("  [{} {}]", to_string(step.dim), to_string(step.direction));
    text += dependencies_text(step.after) + "\n";
    if (repeat) append_steps(program, repeat->body, indent + 4, text);
  }
}

std::string tensor_line(const Tensor& t, std::size_t id) {
  std::string line =
      fmt::format("  {:>3} {:<16} {:<4} [{} x {}]", id, t.name, to_string(t.dtype), t.rows, t.cols);
  if (t.slots > 1 || t.slot_offset > 0)
    line += fmt::format(" x {} slots from {}", t.slots, t.slot_offset);
  if (t.global_rows != t.rows || t.global_cols != t.cols) {
    line += fmt::format(" at ({}, {}) of [{} x {}]", t.row_offset, t.col_offset, t.global_rows,
                        t.global_cols);
  }
  line += fmt::format("  {} bytes", t.bytes());
  if (t.fill != Fill::none) line += fmt::format("  {}", to_string(t.fill));
  if (t.fill != Fill::none && t.scale != 1.0) line += fmt::format(" {}", t.scale);
  if (t.check) line += "  checked";
  return line + "\n";
}

}  // namespace

std::string group_text(const Group& group) {
  constexpr int shown = 8;
  const int size = group.ranks.size();
  std::vector<std::string> ranks;
  for (int i = 0; i < size && (size <= shown || i < shown - 2); ++i) {
    ranks.push_back(fmt::format("{}", group.ranks.at(i)));
  }
  if (size > shown) ranks.push_back(fmt::format("... {}", group.ranks.at(size - 1)));
  return fmt::format("{} {{{}}}", to_string(group.dim), joined(ranks, ", "));
}

std::string view_text(const Program& program, const View& view) {
  if (view.tensor < 0 || view.tensor >= static_cast<TensorId>(program.tensors.size()))
    return "nothing";
  const Tensor& tensor = program.tensors[static_cast<std::size_t>(view.tensor)];
  std::string text = tensor.name;
  if (view.slot_per[0] != 0 || view.slot_per[1] != 0) {
    text += fmt::format("[{}+{}i+{}j]", view.slot, view.slot_per[0], view.slot_per[1]);
  } else if (tensor.slots > 1) {
    text += fmt::format("[{}]", view.slot);
  }
  text += fmt::format("[{}x{}]", view.rows, view.cols);
  if (view.offset != 0) text += fmt::format("+{}", view.offset);
  if (!view.contiguous()) text += fmt::format(" ld {}", view.ld);
  return text;
}

std::string op_text(const Program& program, const Op& op) {
  return std::visit([&program](const auto& one) { return text_of(program, one); }, op);
}

std::string to_text(const Program& program) {
  std::string text = fmt::format("tensors ({} bytes)\n", [&program] {
    Bytes bytes = 0;
    for (const Tensor& tensor : program.tensors) bytes += tensor.bytes();
    return bytes;
  }());
  for (std::size_t i = 0; i < program.tensors.size(); ++i)
    text += tensor_line(program.tensors[i], i);
  if (!program.groups.empty()) text += "groups\n";
  for (std::size_t i = 0; i < program.groups.size(); ++i) {
    text += fmt::format("  {:>3} {} ({} ranks)\n", i, group_text(program.groups[i]),
                        program.groups[i].ranks.size());
  }
  if (!program.prologue.empty()) text += "prologue (once)\n";
  append_steps(program, program.prologue, 2, text);
  text += "steps (one iteration)\n";
  append_steps(program, program.steps, 2, text);
  for (const std::string& note : program.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace weft
