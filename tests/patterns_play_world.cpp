#include "patterns_play.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "patterns/error.hpp"

namespace weft::play {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const std::vector<SendRecv>* messages_of(const Op& op, std::vector<SendRecv>& single) {
  if (const auto* one = std::get_if<SendRecv>(&op)) {
    single = {*one};
    return &single;
  }
  if (const auto* many = std::get_if<PostedTogether>(&op)) return &many->members;
  return nullptr;
}

}  // namespace

double fill_value(const Tensor& t, int global_slot, Index row, Index col) {
  const std::size_t key = std::hash<std::string>{}(t.name) * 31 +
                          static_cast<std::size_t>((global_slot * 4099 + row) * 8209 + col);
  std::uint64_t x = key + 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  const double unit = static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
  switch (t.fill) {
    case Fill::none:
      return kNaN;
    case Fill::zero:
      return 0;
    case Fill::uniform:
      return t.scale * (2 * unit - 1);
    case Fill::positive:
      return t.scale * unit;
    case Fill::constant:
      return t.scale;
    case Fill::values:
      return 0;
    case Fill::zipf_bias:
      return -t.scale * std::log1p(static_cast<double>(col));
  }
  return kNaN;
}

World::World(std::vector<Program> programs) {
  for (Program& program : programs) {
    RankState state;
    for (const Tensor& t : program.tensors) {
      std::vector<double> block;
      for (int s = 0; s < t.slots; ++s) {
        for (Index r = 0; r < t.rows; ++r) {
          for (Index c = 0; c < t.cols; ++c) {
            block.push_back(
                t.fill == Fill::values
                    ? t.values[block.size()]
                    : fill_value(t, s + t.slot_offset, r + t.row_offset, c + t.col_offset));
          }
        }
      }
      state.memory.push_back(std::move(block));
    }
    state.program = std::move(program);
    ranks_.push_back(std::move(state));
  }
}

void World::run(First first, int iterations) {
  play(&Program::prologue, first);
  for (int i = 0; i < iterations; ++i) play(&Program::steps, first);
}

bool World::has(int rank, const std::string& tensor) const {
  const auto& tensors = program(rank).tensors;
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const Tensor& t) { return t.name == tensor; });
}

double& World::at(int rank, const std::string& tensor, int slot, Index row, Index col) {
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < state.program.tensors.size(); ++i) {
    const Tensor& t = state.program.tensors[i];
    if (t.name == tensor) {
      return state.memory[i].at(static_cast<std::size_t>((slot * t.rows + row) * t.cols + col));
    }
  }
  fail(ExitCode::failed, "no tensor " + tensor);
}

double& World::flat_cell(int rank, const View& view, Index element) {
  return cell(rank, view, element / std::max<Index>(1, view.cols),
              element % std::max<Index>(1, view.cols));
}

double& World::cell(int rank, const View& view, Index row, Index col) {
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  const Tensor& t = state.program.tensors.at(static_cast<std::size_t>(view.tensor));
  const Index index = view.slot * t.elements() + view.offset + row * view.ld + col;
  return state.memory[static_cast<std::size_t>(view.tensor)].at(static_cast<std::size_t>(index));
}

int World::head(int rank, StreamRole stream) const {
  const RankState& state = ranks_[static_cast<std::size_t>(rank)];
  const auto s = static_cast<std::size_t>(stream);
  if (state.next[s] >= state.order[s].size()) return -1;
  const int step = state.order[s][state.next[s]];
  for (int before : state.flat[static_cast<std::size_t>(step)].after) {
    if (!state.done[static_cast<std::size_t>(before)]) return -1;
  }
  return step;
}

void World::finish(int rank, StreamRole stream) {
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  const auto s = static_cast<std::size_t>(stream);
  state.done[static_cast<std::size_t>(state.order[s][state.next[s]++])] = 1;
}

void World::play(std::vector<Step> Program::*list, First first) {
  for (RankState& state : ranks_) {
    state.flat = flatten(state.program, state.program.*list);
    state.done.assign(state.flat.size(), 0);
    state.members_done.assign(state.flat.size(), {});
    for (int s : {0, 1}) {
      state.order[s].clear();
      state.next[s] = 0;
    }
    for (std::size_t i = 0; i < state.flat.size(); ++i) {
      state.order[static_cast<std::size_t>(state.flat[i].stream)].push_back(static_cast<int>(i));
    }
  }
  const StreamRole eager = first == First::compute ? StreamRole::compute : StreamRole::comm;
  const StreamRole lazy = first == First::compute ? StreamRole::comm : StreamRole::compute;
  const int n = static_cast<int>(ranks_.size());
  for (;;) {
    bool moved = false;
    for (int r = 0; r < n; ++r) {
      while (advance(r, eager)) moved = true;
    }
    for (int r = 0; r < n && !moved; ++r) moved = advance(r, lazy);
    if (!moved) break;
  }
  for (int r = 0; r < n; ++r) {
    for (int s : {0, 1}) {
      const RankState& state = ranks_[static_cast<std::size_t>(r)];
      if (state.next[s] == state.order[s].size()) continue;
      const int step = state.order[s][state.next[s]];
      fail(ExitCode::failed,
           fmt::format("rank {} stuck in {}", r, state.flat[static_cast<std::size_t>(step)].label));
    }
  }
}

bool World::advance(int rank, StreamRole stream) {
  const int step = head(rank, stream);
  if (step < 0) return false;
  const FlatStep& flat =
      ranks_[static_cast<std::size_t>(rank)].flat[static_cast<std::size_t>(step)];
  if (const auto* op = std::get_if<Compute>(&flat.op)) {
    compute(rank, *op);
    finish(rank, stream);
    return true;
  }
  return advance_comm(rank, step);
}

bool World::advance_comm(int rank, int step) {
  const RankState& state = ranks_[static_cast<std::size_t>(rank)];
  const FlatStep& flat = state.flat[static_cast<std::size_t>(step)];
  std::vector<SendRecv> single;
  if (const auto* members = messages_of(flat.op, single))
    return advance_messages(rank, step, *members);
  const auto& mine = std::get<Collective>(flat.op);
  const Group& group = state.program.groups.at(static_cast<std::size_t>(mine.group));
  std::vector<std::pair<int, const Collective*>> all;
  for (Rank peer : group.ranks.members()) {
    const int at = head(peer, StreamRole::comm);
    if (at < 0) return false;
    const RankState& other = ranks_[static_cast<std::size_t>(peer)];
    const auto* op = std::get_if<Collective>(&other.flat[static_cast<std::size_t>(at)].op);
    if (!op || op->kind != mine.kind) return false;
    if (!(other.program.groups.at(static_cast<std::size_t>(op->group)) == group)) return false;
    all.emplace_back(peer, op);
  }
  collective(all);
  for (const auto& [peer, op] : all) finish(peer, StreamRole::comm);
  return true;
}

bool World::advance_messages(int rank, int step, const std::vector<SendRecv>& members) {
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  std::vector<char>& done = state.members_done[static_cast<std::size_t>(step)];
  done.resize(members.size(), 0);
  bool moved = false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (done[i] || !members[i].send) continue;
    if (match(rank, members[i])) done[i] = 1, moved = true;
  }
  // A receive is ended by its sender, which looks for it here.
  if (std::all_of(done.begin(), done.end(), [](char d) { return d != 0; })) {
    finish(rank, StreamRole::comm);
    moved = true;
  }
  return moved;
}

/// Copies to the peer's first open receive from `rank`, if the peer has come so far.
bool World::match(int rank, const SendRecv& op) {
  const Group& group =
      ranks_[static_cast<std::size_t>(rank)].program.groups.at(static_cast<std::size_t>(op.group));
  const Rank peer = group.ranks.at(op.peer);
  const int at = head(peer, StreamRole::comm);
  if (at < 0) return false;
  RankState& other = ranks_[static_cast<std::size_t>(peer)];
  std::vector<SendRecv> single;
  const auto* members = messages_of(other.flat[static_cast<std::size_t>(at)].op, single);
  if (!members) return false;
  std::vector<char>& done = other.members_done[static_cast<std::size_t>(at)];
  done.resize(members->size(), 0);
  for (std::size_t i = 0; i < members->size(); ++i) {
    const SendRecv& want = (*members)[i];
    if (done[i] || want.send || group.ranks.at(want.peer) != rank) continue;
    if (want.data.elements() != op.data.elements()) fail(ExitCode::failed, "sizes differ");
    for (Index e = 0; e < op.data.elements(); ++e)
      flat_cell(peer, want.data, e) = flat_cell(rank, op.data, e);
    done[i] = 1;
    return true;
  }
  return false;
}

void World::collective(const std::vector<std::pair<int, const Collective*>>& members) {
  const Collective& first = *members.front().second;
  const auto n = members.size();
  std::vector<std::vector<double>> in(n);
  for (std::size_t m = 0; m < n; ++m) {
    const auto& [rank, op] = members[m];
    for (Index e = 0; e < op->in.elements(); ++e) in[m].push_back(flat_cell(rank, op->in, e));
  }
  std::vector<std::vector<Index>> send(n), recv(n);
  for (std::size_t m = 0; m < n && first.kind == CollectiveKind::all_to_all_v; ++m) {
    const auto& [rank, op] = members[m];
    send[m] = op->counts;
    recv[m] = op->recv_counts;
    for (std::size_t p = 0; p < n && op->run_time; ++p) {
      Index out = 0, back = 0;
      for (int i = 0; i < op->run_time->per_peer; ++i) {
        const Index item = static_cast<Index>(p) * op->run_time->per_peer + i;
        out += static_cast<Index>(flat_cell(rank, op->run_time->send, item));
        back += static_cast<Index>(flat_cell(rank, op->run_time->recv, item));
      }
      send[m].push_back(out * op->run_time->row_elements);
      recv[m].push_back(back * op->run_time->row_elements);
    }
  }
  for (std::size_t m = 0; m < n; ++m) {
    const auto& [rank, op] = members[m];
    std::vector<double> out;
    if (first.kind == CollectiveKind::all_gather) {
      for (const auto& part : in) out.insert(out.end(), part.begin(), part.end());
    } else if (first.kind == CollectiveKind::broadcast) {
      out = in[static_cast<std::size_t>(first.root)];
    } else if (first.kind == CollectiveKind::all_to_all_v) {
      for (std::size_t p = 0; p < n; ++p) {
        if (send[p][m] != recv[m][p]) fail(ExitCode::failed, "counts differ");
        const Index from =
            std::accumulate(send[p].begin(), send[p].begin() + static_cast<Index>(m), Index{0});
        for (Index e = 0; e < send[p][m]; ++e)
          out.push_back(in[p].at(static_cast<std::size_t>(from + e)));
      }
    } else {
      std::vector<double> sum(in[0].size(), 0);
      for (const auto& part : in) {
        for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += part.at(e);
      }
      Index from = 0, size = static_cast<Index>(sum.size());
      if (first.kind == CollectiveKind::reduce_scatter) {
        from = std::accumulate(op->counts.begin(), op->counts.begin() + static_cast<Index>(m),
                               Index{0});
        size = op->counts[m];
      }
      out.assign(sum.begin() + from, sum.begin() + from + size);
    }
    if (static_cast<Index>(out.size()) > op->out.elements())
      fail(ExitCode::failed, "more than fits");
    for (std::size_t e = 0; e < out.size(); ++e)
      flat_cell(rank, op->out, static_cast<Index>(e)) = out[e];
  }
}

}  // namespace weft::play
