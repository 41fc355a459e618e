#include "bench/trace_names.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

std::string metadata(std::string_view name, int process, int thread, std::string_view key,
                     const std::string& value) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"{}":{}}}}})", name,
                     process, thread, key, value);
}

}  // namespace

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void name_process(std::vector<std::string>& events, int process, const std::string& name) {
  events.push_back(metadata("process_name", process, 0, "name", json_text(name)));
  events.push_back(
      metadata("process_sort_index", process, 0, "sort_index", fmt::format("{}", process)));
}

void name_thread(std::vector<std::string>& events, int process, int thread,
                 const std::string& name) {
  events.push_back(metadata("thread_name", process, thread, "name", json_text(name)));
  events.push_back(
      metadata("thread_sort_index", process, thread, "sort_index", fmt::format("{}", thread)));
}

}  // namespace weft
