// The scenes by topic, and how their texts are laid out. A scene prints what its source shows, and
// beside it what is commonly done where the two differ.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "patterns/pattern.hpp"

namespace weft {

std::vector<Scene> tensor_parallel_scenes();  // S4, S14, S15, S19
std::vector<Scene> cost_scenes();             // S13, S18
std::vector<Scene> expert_scenes();           // S20

/// A text of headed sections; rows have a name, and a source and a practice column where the two
/// differ.
class SceneText {
 public:
  SceneText(std::string_view id, std::string_view title);
  SceneText& section(std::string_view name);
  /// The same in the source and in practice.
  SceneText& row(std::string_view name, std::string_view what);
  SceneText& row(std::string_view name, std::string_view source, std::string_view practice);
  SceneText& line(std::string_view text);
  std::string text() const { return text_; }

 private:
  std::string text_;
};

/// "50331648 bytes (50.3 MB)"; 1 MB = 1e6 bytes.
std::string bytes_text(Bytes bytes);
/// "2048x768".
std::string shape_text(Index rows, Index cols);

}  // namespace weft
