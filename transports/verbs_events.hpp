// What a device tells out of turn: a port that went down, a queue pair in error. A thread of its
// own reads it, so that it is known when a wait ends in vain.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "transports/shm_segment.hpp"

namespace weft {

class VerbsEvents {
 public:
  /// `where` is the device's name, for the texts.
  VerbsEvents(ibv_context* context, std::string where);
  ~VerbsEvents();
  VerbsEvents(const VerbsEvents&) = delete;
  VerbsEvents& operator=(const VerbsEvents&) = delete;

  /// The last event, "rxe0:1 reported: port error"; empty if there was none.
  std::string last() const;

 private:
  void watch();
  void take(const ibv_async_event& event);

  ibv_context* context_;
  std::string where_;
  Descriptor stop_;
  mutable std::mutex mutex_;
  std::string last_;
  std::thread thread_;
};

}  // namespace weft
