// Numbers and texts that all events of a trace agree on.
#pragma once

#include <string>
#include <vector>

#include "patterns/types.hpp"

namespace weft {

// Process 0 is the kernel's idle task in some viewers, so ranks begin at 1.
constexpr int process_of(Rank rank) { return rank + 1; }
/// Whole iterations of all ranks, below the ranks: a number that no rank reaches.
inline constexpr int kRunProcess = 1'000'000;

inline constexpr int kComputeThread = 1;
inline constexpr int kCommThread = 2;
/// The first of the threads of messages. Messages that overlap in time lie on threads of their own,
/// for slices of one thread must nest.
inline constexpr int kSentThread = 1000;
inline constexpr int kReceivedThread = 2000;

/// `text` as a JSON string, quoted; bytes that are no UTF-8 are replaced.
std::string json_text(const std::string& text);

/// Events that name a process or a thread, and give it its place.
void name_process(std::vector<std::string>& events, int process, const std::string& name);
void name_thread(std::vector<std::string>& events, int process, int thread,
                 const std::string& name);

}  // namespace weft
