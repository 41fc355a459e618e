#include "patterns/scenes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "patterns/error.hpp"

namespace weft {

SceneText::SceneText(std::string_view id, std::string_view title)
    : text_(fmt::format("Scene {}: {}\n", id, title)) {}

SceneText& SceneText::section(std::string_view name) {
  text_ += fmt::format("\n{}\n", name);
  return *this;
}

SceneText& SceneText::row(std::string_view name, std::string_view what) {
  text_ += fmt::format("  {:<26} {}\n", name, what);
  return *this;
}

SceneText& SceneText::row(std::string_view name, std::string_view source,
                          std::string_view practice) {
  text_ += fmt::format("  {:<26} as in the source:      {}\n", name, source);
  text_ += fmt::format("  {:<26} as commonly practised: {}\n", "", practice);
  return *this;
}

SceneText& SceneText::line(std::string_view text) {
  text_ += fmt::format("  {}\n", text);
  return *this;
}

std::string bytes_text(Bytes bytes) {
  const auto b = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  if (bytes < 1000000) return fmt::format("{} bytes ({:.1f} kB)", bytes, b / 1e3);
  if (bytes < 1000000000) return fmt::format("{} bytes ({:.1f} MB)", bytes, b / 1e6);
  return fmt::format("{} bytes ({:.2f} GB)", bytes, b / 1e9);
}

std::string shape_text(Index rows, Index cols) { return fmt::format("{}x{}", rows, cols); }

namespace {

std::vector<Scene> all_scenes() {
  std::vector<Scene> all;
  for (auto make : {tensor_parallel_scenes, cost_scenes, expert_scenes}) {
    for (Scene& scene : make()) all.push_back(std::move(scene));
  }
  return all;
}

bool plays(const Scene& scene, std::string_view pattern) {
  return scene.pattern == "*" || scene.pattern == pattern;
}

}  // namespace

const std::vector<Scene>& scenes() {
  static const std::vector<Scene> list = all_scenes();
  return list;
}

const Scene& find_scene(std::string_view id, std::string_view pattern) {
  std::vector<std::string> known;
  for (const Scene& scene : scenes()) {
    if (!plays(scene, pattern)) continue;
    if (scene.id == id) return scene;
    known.push_back(fmt::format("{} ({})", scene.id, scene.title));
  }
  fail_usage(fmt::format("weft-{} plays no scene '{}'; choose one of {}", pattern, id,
                         fmt::join(known, ", ")));
}

}  // namespace weft
