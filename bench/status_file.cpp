// The verdict of a launch, for scripts: mpiexec's own exit code says little after a rank's death.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "bench/output_file.hpp"
#include "bench/provenance.hpp"
#include "bench/row_writer.hpp"
#include "patterns/error.hpp"

namespace weft {

StatusFile::StatusFile(std::string path, std::string launch_id)
    : path_(std::move(path)), launch_id_(std::move(launch_id)), started_(std::time(nullptr)) {}

void StatusFile::running() { write("running", "", "", 0); }

namespace {

/// Over the old text, where there is no room for a second file: its block is there.
bool overwrite_in_place(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto size = static_cast<ssize_t>(text.size());
  const bool written =
      ::pwrite(fd, text.data(), text.size(), 0) == size && ::ftruncate(fd, size) == 0;
  ::close(fd);
  return written;
}

}  // namespace

void StatusFile::finish(int exit_code, const std::string& why, int rows) {
  try {
    write(exit_code == 0 ? "complete" : "incomplete", std::to_string(exit_code), why, rows);
  } catch (const Error& error) {
    // The run has its verdict; a file left at "running" tells scripts that it did not end well.
    fmt::print(stderr, "weft: {}\n", error.what());
  }
}

void StatusFile::write(const std::string& state, const std::string& exit_code,
                       const std::string& why, int rows) {
  if (path_.empty()) return;
  nlohmann::ordered_json status{{"launch_id", launch_id_}, {"state", state}};
  status["exit_code"] =
      exit_code.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json::parse(exit_code);
  status["why"] = why;
  status["rows"] = rows;
  const auto lasted = std::chrono::steady_clock::now() - began_;
  const std::time_t ended =
      started_ + std::chrono::duration_cast<std::chrono::seconds>(lasted).count();
  status["started"] = utc_text(started_);
  status["ended"] =
      state == "running" ? nlohmann::ordered_json() : nlohmann::ordered_json(utc_text(ended));
  // Of this thread alone: a rank may say "running" while another one gives up for all.
  const std::string temporary = fmt::format("{}.{}.{}", path_, launch_id_, ::gettid());
  const std::string text =
      status.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  try {
    OutputFile(temporary, OutputFile::Mode::replace).append(text);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    if (overwrite_in_place(path_, text)) return;
    throw;
  }
  if (std::rename(temporary.c_str(), path_.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    ::unlink(temporary.c_str());
    fail_usage(fmt::format("cannot write {}: {}; name a file in a folder you may write to", path_,
                           reason));
  }
}

}  // namespace weft
