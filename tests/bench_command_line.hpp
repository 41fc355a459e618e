// A command line to try, for the tests of the options.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "bench/options.hpp"
#include "patterns/error.hpp"

namespace weft {

inline const Pattern& pattern_named(std::string_view name) {
  static const Pattern column{.name = "tp-allgather",
                              .summary = "Column-parallel linear layer",
                              .dim = Dimension::tp,
                              .directions = {Direction::forward, Direction::backward},
                              .sweep = {},
                              .default_model = "tiny",
                              .make = nullptr,
                              .make_reference = nullptr,
                              .option_texts = nullptr};
  static std::vector<Pattern> others{column, column, column, column};
  others[0].name = "row-allreduce";
  others[1].name = "pp-sendrecv";
  others[2].name = "dp-gradsync";
  others[3].name = "moe-alltoall";
  for (const Pattern& other : others) {
    if (other.name == name) return other;
  }
  return column;
}

inline bool parse(std::vector<std::string> arguments, Options& options,
                  std::string_view pattern = "tp-allgather") {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return parse_options(static_cast<int>(argv.size()), argv.data(), pattern_named(pattern), options,
                       false);
}

inline Options parsed(const std::vector<std::string>& arguments,
                      std::string_view pattern = "tp-allgather") {
  Options options;
  EXPECT_TRUE(parse(arguments, options, pattern));
  return options;
}

inline std::string error_of(const std::vector<std::string>& arguments,
                            std::string_view pattern = "tp-allgather") {
  Options options;
  try {
    parse(arguments, options, pattern);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "(no error)";
}

inline void expect_error_with(const std::string& part, const std::vector<std::string>& arguments,
                              std::string_view pattern = "tp-allgather") {
  const std::string message = error_of(arguments, pattern);
  EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks '" << part << "'";
}

}  // namespace weft
