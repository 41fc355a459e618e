// What a failed work completion means, in words. Private to verbs*.cpp and their tests.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace weft {

/// "the peer did not acknowledge (transport retry counter exceeded, status 12)"
std::string completion_text(ibv_wc_status status);
/// What to look at.
std::string completion_remedy(ibv_wc_status status);

}  // namespace weft
