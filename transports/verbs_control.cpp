#include "transports/verbs_control.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr Bytes kCacheLine = 64, kPage = 4096;

Bytes up_to(Bytes bytes, Bytes multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace

void UnloadedSlots::unload_out_of_turn(std::uint32_t slot) {
  unloaded_.set(slot);
  ++waiting_;
  for (; unloaded_.test(uses_ & mask_); ++uses_, --waiting_) unloaded_.reset(uses_ & mask_);
}

VerbsControl::Pages::Pages(Bytes bytes)
    : memory_(static_cast<std::byte*>(
          std::aligned_alloc(kPage, static_cast<std::size_t>(up_to(bytes, kPage))))) {
  if (!memory_) fail_usage(fmt::format("no memory for {} bytes of flow control", bytes));
  std::memset(memory_.get(), 0, static_cast<std::size_t>(bytes));
}

VerbsControl::VerbsControl(ibv_pd* domain, int ranks, Bytes eager, int long_slots,
                           const std::string& where)
    : eager_(eager),
      rings_{{{kShortSlots, kShortSlot, sizeof(Credits)},
              {static_cast<std::uint32_t>(long_slots),
               up_to(eager + static_cast<Bytes>(sizeof(Envelope)), kCacheLine),
               sizeof(Credits) + kShortSlots * kShortSlot}}},
      block_(rings_[SlotRing::long_].begin + long_slots * rings_[SlotRing::long_].bytes),
      memory_(ranks * 2 * block_),
      registered_(register_memory(
          domain, {memory_.data(), static_cast<std::size_t>(ranks * 2 * block_)}, where)) {}

}  // namespace weft
