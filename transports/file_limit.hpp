// How many files this process may have open: descriptors are what connections and shared memory
// take.
#pragma once

#include <string>

namespace weft {

/// Raises the limit to what the system allows this process without privileges, and returns it.
int raise_file_limit();

/// Empty, or what to tell the user if `needed` more files do not fit: limit, need and cure.
std::string too_few_files(int needed);

}  // namespace weft
