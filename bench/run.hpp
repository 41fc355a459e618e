// One run of a pattern program, from the command line to the exit code.
#pragma once

#include <string_view>

namespace weft {

/// main() of every program. Returns the exit code that all ranks have agreed on.
int run_program(int argc, char** argv, std::string_view pattern);

}  // namespace weft
