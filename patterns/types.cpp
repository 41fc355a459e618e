#include "patterns/types.hpp"

#include <algorithm>
#include <string>

namespace weft {

std::string_view to_string(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (DType type : {DType::f32, DType::bf16, DType::f16}) {
    if (lower == to_string(type)) return type;
  }
  return std::nullopt;
}

std::string_view to_string(Dimension dimension) {
  switch (dimension) {
    case Dimension::tp:
      return "tp";
    case Dimension::cp:
      return "cp";
    case Dimension::ep:
      return "ep";
    case Dimension::dp:
      return "dp";
    case Dimension::pp:
      return "pp";
    case Dimension::none:
      return "none";
  }
  return "?";
}

std::string_view to_string(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return "forward";
    case Direction::backward:
      return "backward";
    case Direction::both:
      return "both";
  }
  return "?";
}

std::string_view to_string(StreamRole stream) {
  return stream == StreamRole::compute ? "compute" : "comm";
}

std::string_view to_string(Activation activation) {
  switch (activation) {
    case Activation::identity:
      return "identity";
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::swiglu:
      return "swiglu";
  }
  return "?";
}

}  // namespace weft
