#include "transports/shm_segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "patterns/error.hpp"

namespace weft {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int Descriptor::release() { return std::exchange(fd_, -1); }

SharedMapping::SharedMapping(int fd, Bytes bytes) : bytes_(bytes) {
  void* at =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    fail_usage(fmt::format("cannot map {} bytes of shared memory: {}; look at ulimit -v", bytes,
                           std::strerror(errno)));
  }
  data_ = static_cast<std::byte*>(at);
}

SharedMapping::~SharedMapping() { munmap(data_, static_cast<std::size_t>(bytes_)); }

Descriptor make_memfd(const char* name, Bytes bytes) {
  Descriptor fd(memfd_create(name, MFD_CLOEXEC));
  if (fd.get() < 0) fail_usage(fmt::format("memfd_create: {}", std::strerror(errno)));
  const int code = posix_fallocate(fd.get(), 0, bytes);
  if (code != 0) {
    fail_usage(
        fmt::format("cannot reserve {} bytes of shared memory: {}", bytes, std::strerror(code)));
  }
  return fd;
}

Bytes size_of_file(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? static_cast<Bytes>(status.st_size) : -1;
}

Token random_token() {
  Token token;
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    fail_usage(fmt::format("getrandom: {}", std::strerror(errno)));
  }
  return token;
}

TokenPage::TokenPage(std::byte* block, const Token& token) : block_(block) {
  std::memcpy(saved_.data(), block_, saved_.size());
  std::memcpy(block_, token.data(), token.size());
}

TokenPage::~TokenPage() { std::memcpy(block_, saved_.data(), saved_.size()); }

bool shows_token(const std::byte* block, const Token& token) {
  return std::memcmp(block, token.data(), token.size()) == 0;
}

}  // namespace weft
