#include "transports/counter_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace weft {
namespace {

constexpr std::size_t kReadAtOnce = 1 << 12;
constexpr std::size_t kLargestFile = 1 << 16;  // /proc/net/snmp has 2 KiB
constexpr std::size_t kQuoted = 40;

Descriptor open_counter(const std::filesystem::path& path) {
  return Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

std::string_view without_blanks(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// Of odd files too: what is no text has no place in a row.
std::string quoted(std::string_view text) {
  std::string shown(text.substr(0, kQuoted));
  std::ranges::replace_if(
      shown, [](char c) { return c < ' ' || c > '~'; }, '?');
  return fmt::format("says '{}{}'", shown, text.size() > kQuoted ? "..." : "");
}

std::string_view next_line(std::string_view& text) {
  const auto end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// Takes a word off the front.
std::string_view next_field(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view field = line.substr(0, line.find(' '));
  line.remove_prefix(field.size());
  return field;
}

}  // namespace

CounterValue counter_value(std::string_view text) {
  const std::string_view number = without_blanks(text);
  if (number.empty()) return {0, "is empty"};
  CounterValue found;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), found.value);
  if (error != std::errc{} || end != number.data() + number.size()) return {0, quoted(number)};
  return found;
}

CounterFile::CounterFile(std::filesystem::path path, bool keep) : path_(std::move(path)) {
  if (keep) kept_ = open_counter(path_);
}

std::string CounterFile::text(std::string& why) const {
  Descriptor opened;
  if (kept_.get() < 0) opened = open_counter(path_);
  const int fd = kept_.get() < 0 ? opened.get() : kept_.get();
  std::string text;
  if (fd < 0) {
    why = std::strerror(errno);
    return text;
  }
  struct stat facts {};
  if (fstat(fd, &facts) == 0 && facts.st_nlink == 0) {
    why = "is gone";
    return text;
  }
  char part[kReadAtOnce];
  ssize_t got = 0;
  while (text.size() < kLargestFile &&
         (got = pread(fd, part, sizeof part, static_cast<off_t>(text.size()))) > 0) {
    text.append(part, static_cast<std::size_t>(got));
  }
  if (got < 0) why = std::strerror(errno);
  return text;
}

CounterValue CounterFile::value() const {
  std::string why;
  const std::string content = text(why);
  return why.empty() ? counter_value(content) : CounterValue{0, why};
}

CounterValue snmp_value(std::string_view text, std::string_view section, std::string_view column) {
  const std::string prefix = fmt::format("{}: ", section);
  while (!text.empty()) {
    std::string_view names = next_line(text);
    if (!names.starts_with(prefix)) continue;
    std::string_view values = next_line(text);
    if (!values.starts_with(prefix)) break;
    names.remove_prefix(prefix.size());
    values.remove_prefix(prefix.size());
    while (!without_blanks(names).empty()) {
      const std::string_view name = next_field(names), value = next_field(values);
      if (name == column) return counter_value(value);
    }
  }
  return {0, "is not there"};
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error), end;
  for (; !error && at != end; at.increment(error)) names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace weft
