// Files that survive: whole lines, each in the kernel before the next is made.
#pragma once

#include <string>
#include <string_view>

#include "patterns/types.hpp"

namespace weft {

/// An open file, its path, and errors that name both. Throws Error(usage) if it cannot be opened
/// for writing.
class OutputFile {
 public:
  enum class Mode {
    append,   // keep what is there; every write goes to the end
    replace,  // empty it; refuses (Error(usage)) while another run holds it
  };
  OutputFile(const std::string& path, Mode mode);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Appends `text` in one write(2); if that fails, the file is cut back to what it was and
  /// Error(failed) is thrown.
  void append(std::string_view text);
  /// Writes `text` at `offset`, over what is there. On failure restores `old_text` there, then
  /// throws Error(failed).
  void overwrite(Bytes offset, std::string_view text, std::string_view old_text);

  const std::string& path() const { return path_; }
  bool regular() const { return regular_; }  // neither device nor pipe
  Bytes size() const;
  /// Up to `count` bytes from `offset`; shorter at the end of the file.
  std::string read(Bytes offset, Bytes count) const;
  void truncate(Bytes size);

  /// Holds the file against other processes while it lives. File systems without locks are used
  /// without.
  class Lock {
   public:
    explicit Lock(OutputFile& file);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    int fd_;
  };

 private:
  [[noreturn]] void fail_write(int reason) const;

  std::string path_;
  int fd_ = -1;
  bool regular_ = false;
};

}  // namespace weft
