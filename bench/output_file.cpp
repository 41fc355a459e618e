#include "bench/output_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr int kReadableByAll = 0644;

/// 0, or the errno of the write that failed.
int write_at(int fd, std::string_view text, const Bytes* offset) {
  std::size_t done = 0;
  while (done < text.size()) {
    const char* from = text.data() + done;
    const ssize_t written = offset == nullptr ? ::write(fd, from, text.size() - done)
                                              : ::pwrite(fd, from, text.size() - done,
                                                         *offset + static_cast<Bytes>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    done += static_cast<std::size_t>(written);
  }
  return 0;
}

}  // namespace

OutputFile::OutputFile(const std::string& path, Mode mode) : path_(path) {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (mode == Mode::append ? O_APPEND : 0);
  fd_ = ::open(path.c_str(), flags, kReadableByAll);
  if (fd_ < 0) {
    fail_usage(fmt::format(
        "cannot write {}: {}; name a file in a folder you may write to, or leave this output out "
        "(--csv none)",
        path, std::strerror(errno)));
  }
  struct stat status {};
  regular_ = ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
  if (mode == Mode::append || !regular_) return;
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd_);
    fail_usage(
        fmt::format("cannot write {}: another run is writing it now; name another file", path));
  }
  truncate(0);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), regular_(other.regular_) {}

void OutputFile::fail_write(int reason) const {
  fail(ExitCode::failed,
       fmt::format(
           "cannot write {}: {}; what was measured before is in it; make room or name another "
           "file, and start again",
           path_, std::strerror(reason)));
}

void OutputFile::append(std::string_view text) {
  const Bytes before = size();
  // O_APPEND and the file position of a file that only this process writes both lead to the end.
  const int reason = write_at(fd_, text, nullptr);
  if (reason == 0) return;
  if (regular_) truncate(before);
  fail_write(reason);
}

void OutputFile::overwrite(Bytes offset, std::string_view text, std::string_view old_text) {
  const int reason = write_at(fd_, text, &offset);
  if (reason == 0) return;
  truncate(offset + static_cast<Bytes>(old_text.size()));
  write_at(fd_, old_text, &offset);  // its blocks are there: this needs no room
  fail_write(reason);
}

Bytes OutputFile::size() const {
  struct stat status {};
  return ::fstat(fd_, &status) == 0 && regular_ ? status.st_size : 0;
}

std::string OutputFile::read(Bytes offset, Bytes count) const {
  std::string text(static_cast<std::size_t>(count), '\0');
  const ssize_t got = ::pread(fd_, text.data(), text.size(), offset);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

void OutputFile::truncate(Bytes size) {
  // Best effort: it tidies up on the way to an error, or empties a file just opened for writing.
  [[maybe_unused]] const int ignored = ::ftruncate(fd_, size);
}

OutputFile::Lock::Lock(OutputFile& file) : fd_(file.fd_) {
  while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

OutputFile::Lock::~Lock() { ::flock(fd_, LOCK_UN); }

}  // namespace weft
