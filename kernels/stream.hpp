// In-order queues of work, and the events that order them against each other.
//
//   auto comm = make_stream(StreamKind::worker);
//   comm->submit({run_step, &step});      // in order; nothing is allocated
//   comm->record(done); compute->wait(done); comm->synchronize();
//
// Wrong: to submit a Task whose argument dies before synchronize().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>

namespace weft {

/// A unit of work: a function and its argument, which the caller keeps alive. No allocation.
struct Task {
  void (*run)(void* argument) = nullptr;
  void* argument = nullptr;
};

/// Says that work is done. An event is recorded once per iteration by one stream and waited for by
/// others.
class Event {
 public:
  /// Only while no stream records or waits for it.
  void reset();
  bool reached() const { return reached_.load(std::memory_order_acquire) != 0; }
  void set();
  /// Reached, but the stream that recorded it had failed: streams that wait for it fail with the
  /// same error.
  void fail(std::exception_ptr error);
  /// What fail() was given; null otherwise.
  std::exception_ptr error() const;
  /// Returns when the event is reached or `abandoned` holds: spins briefly, then yields, then
  /// sleeps.
  void wait_unless(const std::atomic<bool>& abandoned);

 private:
  static constexpr std::uint32_t kReached = 1, kFailed = 2;
  void complete(std::uint32_t state);

  std::atomic<std::uint32_t> reached_{0}, sleepers_{0};
  std::exception_ptr error_;
};

enum class StreamKind : std::uint8_t {
  inline_,  // submit() runs the task at once, on the caller's thread
  worker,   // a FIFO thread of its own
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// Enqueues a task. An exception of a task is kept, later tasks are skipped, synchronize()
  /// rethrows it.
  virtual void submit(Task task) = 0;
  /// Sets the event when all work submitted before is done; fails it if this stream has failed, so
  /// that nobody waits for ever.
  virtual void record(Event& event) = 0;
  /// Work submitted after this starts only when the event is reached. If the event failed, this
  /// stream fails too.
  virtual void wait(Event& event) = 0;
  /// Returns when all submitted work is done; rethrows what a task threw, after which the stream
  /// can be used again.
  virtual void synchronize() = 0;
};

std::unique_ptr<Stream> make_stream(StreamKind kind);

}  // namespace weft
