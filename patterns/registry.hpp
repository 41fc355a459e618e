// The entries of the explicit list of patterns; each is defined in the pattern's own file.
#pragma once

#include "patterns/pattern.hpp"

namespace weft {

const Pattern& tp_allgather_pattern();
const Pattern& row_allreduce_pattern();
const Pattern& pp_sendrecv_pattern();
const Pattern& dp_gradsync_pattern();
const Pattern& moe_alltoall_pattern();

}  // namespace weft
