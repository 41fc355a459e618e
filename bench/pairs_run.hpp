// One run of weft-pairs, from the command line to the exit code.
#pragma once

namespace weft {

/// Its main(). Returns the exit code that all ranks have agreed on.
int run_pairs(int argc, char** argv);

}  // namespace weft
