// The errors every room throws, and the exit codes every program and script documents.
#pragma once

#include <stdexcept>
#include <string>

namespace weft {

/// Exit codes of every program and script.
enum class ExitCode : int {
  ok = 0,
  failed = 1,        // a verification or a threshold failed
  usage = 2,         // wrong usage, or an environment that cannot run this
  inconclusive = 3,  // measured, but nothing can be said
  timed_out = 4,
};

/// An error that ends the run. `what()` names the cause and the remedy in one line.
/// Throw it through fail_usage() or fail(); only main() catches it.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

[[noreturn]] inline void fail(ExitCode code, const std::string& message) {
  throw Error(code, message);
}

/// Wrong input or environment: exit code 2. Say what is wrong and what would be right.
[[noreturn]] inline void fail_usage(const std::string& message) { fail(ExitCode::usage, message); }

}  // namespace weft
