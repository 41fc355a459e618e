// Names of real and virtual hosts. A virtual host "name/v0" is a part of the real host "name".
#pragma once

#include <string>
#include <vector>

namespace weft {

/// Splits each real host into virtual hosts of `ranks_per_host` ranks, in rank order; 0 leaves the
/// names as they are. Throws Error(usage) below 0.
std::vector<std::string> with_virtual_hosts(std::vector<std::string> real, int ranks_per_host);

/// "name" of "name/v0" and of "name".
std::string real_host(const std::string& host);

/// Distinct real hosts, in order of first appearance.
std::vector<std::string> distinct_real_hosts(const std::vector<std::string>& hosts);

}  // namespace weft
