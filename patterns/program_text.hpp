// Short texts of a program's parts, for listings and for the messages of the validators.
#pragma once

#include <string>

#include "patterns/program.hpp"

namespace weft {

/// "tp {0, 1}"; of a large group the first ranks, "..." and the last.
std::string group_text(const Group& group);
/// "Y[1][128x64]": tensor, slot where it has several, shape; with offset and ld where it is no
/// whole slot.
std::string view_text(const Program& program, const View& view);
/// "gemm A[8x4], B[4x2] -> C[8x2]", "all_reduce Y -> Z over tp {0, 1}", "send X to rank 1 (pp {0,
/// 1})".
std::string op_text(const Program& program, const Op& op);

}  // namespace weft
