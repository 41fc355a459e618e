// Shared memory without names: memfds, their mappings, and the tokens that prove which rank's
// memory a mapping shows.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "patterns/types.hpp"

namespace weft {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int get() const { return fd_; }
  int release();

 private:
  int fd_ = -1;
};

/// Owns a shared, writable mapping of a whole memfd.
class SharedMapping {
 public:
  /// Throws Error(usage) with the system's reason if it cannot be mapped.
  SharedMapping(int fd, Bytes bytes);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  std::byte* data() const { return data_; }
  Bytes size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  Bytes bytes_ = 0;
};

/// A memfd of zeros whose memory is reserved, so that touching it never fails. Throws Error(usage).
Descriptor make_memfd(const char* name, Bytes bytes);
/// Size of the file behind a descriptor; -1: unknown.
Bytes size_of_file(int fd);

using Token = std::array<std::byte, 16>;
Token random_token();

/// Shows a token at the start of a block for as long as it lives; then the block is as it was.
class TokenPage {
 public:
  TokenPage(std::byte* block, const Token& token);
  ~TokenPage();
  TokenPage(const TokenPage&) = delete;
  TokenPage& operator=(const TokenPage&) = delete;

 private:
  std::byte* block_;
  Token saved_;
};
bool shows_token(const std::byte* block, const Token& token);

}  // namespace weft
