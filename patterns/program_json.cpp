#include <nlohmann/json.hpp>

#include "patterns/program.hpp"

namespace weft {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const View& view) {
  if (view.tensor < 0) return nullptr;
  return {{"tensor", view.tensor}, {"slot", view.slot}, {"slot_per", view.slot_per},
          {"offset", view.offset}, {"rows", view.rows}, {"cols", view.cols},
          {"ld", view.ld}};
}

Json json_of(const std::vector<View>& views) {
  Json list = Json::array();
  for (const View& view : views) list.push_back(json_of(view));
  return list;
}

Json json_of(const Tensor& t) {
  return {{"name", t.name},
          {"dtype", to_string(t.dtype)},
          {"rows", t.rows},
          {"cols", t.cols},
          {"global_rows", t.global_rows},
          {"global_cols", t.global_cols},
          {"row_offset", t.row_offset},
          {"col_offset", t.col_offset},
          {"slots", t.slots},
          {"slot_offset", t.slot_offset},
          {"fill", to_string(t.fill)},
          {"scale", t.scale},
          {"values", t.values},
          {"check", t.check},
          {"persistent", t.persistent},
          {"bytes", t.bytes()}};
}

Json json_of(const Group& group) {
  Json axes = Json::array();
  for (const RankSet::Axis& axis : group.ranks.axes)
    axes.push_back({{"count", axis.count}, {"stride", axis.stride}});
  return {{"dim", to_string(group.dim)},
          {"size", group.ranks.size()},
          {"base", group.ranks.base},
          {"axes", std::move(axes)}};
}

Json json_of(const Compute& op) {
  return {{"op", "compute"},
          {"kind", to_string(op.kind)},
          {"in", json_of(op.in)},
          {"out", json_of(op.out)},
          {"trans_a", op.trans_a},
          {"trans_b", op.trans_b},
          {"accumulate", op.accumulate},
          {"normalize", op.normalize},
          {"act", to_string(op.act)},
          {"factor", op.factor},
          {"experts", op.experts},
          {"step", op.step},
          {"counts", op.counts},
          {"ways", op.ways},
          {"flops", op.flops()}};
}

Json json_of(const Collective& op) {
  Json json{{"op", "collective"},
            {"kind", to_string(op.kind)},
            {"group", op.group},
            {"in", json_of(op.in)},
            {"out", json_of(op.out)},
            {"counts", op.counts},
            {"recv_counts", op.recv_counts},
            {"root", op.root}};
  json["run_time"] = nullptr;
  if (op.run_time) {
    json["run_time"] = {{"send", json_of(op.run_time->send)},
                        {"recv", json_of(op.run_time->recv)},
                        {"per_peer", op.run_time->per_peer},
                        {"row_elements", op.run_time->row_elements}};
  }
  return json;
}

Json json_of(const SendRecv& op) {
  return {{"op", op.send ? "send" : "recv"},
          {"group", op.group},
          {"peer", op.peer},
          {"data", json_of(op.data)}};
}

Json json_of(const PostedTogether& op) {
  Json members = Json::array();
  for (const SendRecv& member : op.members) members.push_back(json_of(member));
  return {{"op", "posted_together"}, {"members", std::move(members)}};
}

Json json_of(const std::vector<Step>& steps);

Json json_of(const Repeat& op) {
  return {{"op", "repeat"}, {"count", op.count}, {"body", json_of(op.body)}};
}

Json json_of(const std::vector<Step>& steps) {
  Json list = Json::array();
  for (const Step& step : steps) {
    Json after = Json::array();
    for (const Dependency& d : step.after)
      after.push_back({{"step", d.step}, {"distance", d.distance}});
    Json json{{"label", step.label},
              {"stream", to_string(step.stream)},
              {"dim", to_string(step.dim)},
              {"direction", to_string(step.direction)},
              {"after", std::move(after)}};
    json.update(std::visit([](const auto& op) { return json_of(op); }, step.op));
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

std::string to_json(const Program& program) {
  Json tensors = Json::array(), groups = Json::array();
  for (const Tensor& tensor : program.tensors) tensors.push_back(json_of(tensor));
  for (const Group& group : program.groups) groups.push_back(json_of(group));
  const Json json{{"tensors", std::move(tensors)},
                  {"groups", std::move(groups)},
                  {"prologue", json_of(program.prologue)},
                  {"steps", json_of(program.steps)},
                  {"notes", program.notes}};
  return json.dump(2);
}

}  // namespace weft
