#include "transports/bootstrap_agree.hpp"

#include <algorithm>
#include <new>

namespace weft {

std::string error_record(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return static_cast<char>(error.code()) + std::string(error.what());
  } catch (const std::bad_alloc&) {
    return static_cast<char>(ExitCode::usage) +
           std::string("out of memory; choose smaller sizes or fewer ranks per host");
  } catch (const std::exception& error) {
    return static_cast<char>(ExitCode::failed) + std::string(error.what());
  }
}

void throw_error_record(const std::string& record) {
  if (!record.empty()) throw AgreedError(static_cast<ExitCode>(record.front()), record.substr(1));
}

std::string first_reason(Bootstrap& bootstrap, const std::string& mine) {
  const std::vector<std::string> reasons = bootstrap.all_gather(mine);
  const auto first = std::ranges::find_if(reasons, [](const std::string& r) { return !r.empty(); });
  if (first == reasons.end()) return {};
  const auto rank = static_cast<std::size_t>(first - reasons.begin());
  return "rank " + std::to_string(rank) + " on " + bootstrap.hosts()[rank] + ": " + *first;
}

void together(Bootstrap& bootstrap, const std::function<void()>& work) {
  const std::vector<std::string> records = bootstrap.all_gather(error_record(work));
  const auto failed =
      std::ranges::find_if(records, [](const std::string& r) { return !r.empty(); });
  if (failed == records.end()) return;
  const bool everywhere = std::ranges::none_of(records, &std::string::empty);
  const std::string where =
      everywhere ? "" : "rank " + std::to_string(failed - records.begin()) + ": ";
  throw AgreedError(static_cast<ExitCode>(failed->front()), where + failed->substr(1));
}

}  // namespace weft
