// Short ways to build wrong programs and to look at what the validators say of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "patterns/error.hpp"
#include "patterns/program.hpp"

namespace weft {

/// The message of the usage error that `check` throws; empty if it throws none.
inline std::string message_of(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}
inline std::string error_of(const Program& program) {
  return message_of([&program] { validate(program); });
}
inline std::string error_of(const std::vector<Program>& programs) {
  return message_of([&programs] { validate_world(programs); });
}

inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n  in: " << text;
  }
}

inline TensorId add(Program& p, const std::string& name, Index rows, Index cols,
                    DType dtype = DType::f32) {
  const Fill fill = dtype == DType::i32 ? Fill::zero : Fill::uniform;
  return p.add(Tensor{.name = name, .dtype = dtype, .rows = rows, .cols = cols, .fill = fill});
}

}  // namespace weft
