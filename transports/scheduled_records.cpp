#include "transports/scheduled_records.hpp"

#include <cstring>
#include <type_traits>

#include "patterns/error.hpp"

namespace weft {
namespace {

/// One list of fields serves both directions: visit(archive, record) names each field once.
class Writer {
 public:
  static constexpr bool kReads = false;
  void raw(const void* data, std::size_t n) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + n);
  }
  std::vector<std::byte> bytes;
};

class Reader {
 public:
  static constexpr bool kReads = true;
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  void raw(void* data, std::size_t n) {
    if (n > rest_.size()) fail(ExitCode::failed, "a rank's record in commit() is cut short");
    if (n > 0) std::memcpy(data, rest_.data(), n);
    rest_ = rest_.subspan(n);
  }

 private:
  std::span<const std::byte> rest_;
};

template <class Archive, class T>
requires std::is_arithmetic_v<T> || std::is_enum_v<T>
void visit(Archive& archive, T& value) { archive.raw(&value, sizeof value); }

template <class Archive>
void visit(Archive& archive, std::string& text);
template <class Archive, class T>
void visit(Archive& archive, std::vector<T>& list);

template <class Archive>
void visit(Archive& archive, PointRecord& r) {
  visit(archive, r.send);
  visit(archive, r.peer);
  visit(archive, r.place);
  visit(archive, r.bytes);
}

template <class Archive>
void visit(Archive& archive, OperationRecord& r) {
  visit(archive, r.kind);
  visit(archive, r.dtype);
  visit(archive, r.root);
  visit(archive, r.in);
  visit(archive, r.out);
  visit(archive, r.elements);
  visit(archive, r.row_elements);
  visit(archive, r.counts);
  visit(archive, r.recv_counts);
  visit(archive, r.members);
  visit(archive, r.label);
}

template <class Archive>
void visit(Archive& archive, CommRecord& r) {
  visit(archive, r.dim);
  visit(archive, r.ranks);
  visit(archive, r.control);
  visit(archive, r.operations);
}

template <class Archive>
void visit(Archive& archive, RankRecord& r) {
  visit(archive, r.scratch);
  visit(archive, r.error);
  visit(archive, r.comms);
}

template <class Archive, class List>
void visit_size(Archive& archive, List& list) {
  std::uint64_t size = list.size();
  visit(archive, size);
  if constexpr (Archive::kReads) list.resize(size);
}

template <class Archive>
void visit(Archive& archive, std::string& text) {
  visit_size(archive, text);
  archive.raw(text.data(), text.size());
}

template <class Archive, class T>
void visit(Archive& archive, std::vector<T>& list) {
  visit_size(archive, list);
  for (T& item : list) visit(archive, item);
}

}  // namespace

std::vector<std::byte> pack(const RankRecord& record) {
  Writer writer;
  RankRecord copy = record;
  visit(writer, copy);
  return std::move(writer.bytes);
}

RankRecord unpack(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  RankRecord record;
  visit(reader, record);
  return record;
}

}  // namespace weft
