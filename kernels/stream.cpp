#include "kernels/stream.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace weft {
namespace {

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == sizeof(std::uint32_t), "a futex is a plain 32-bit word");

// Where each thread has a core, waits end while spinning or yielding. Where threads outnumber cores
// a thread that yields still takes its share of the processor from those that compute, so it must
// fall asleep soon.
constexpr int kSpins = 400;
constexpr std::chrono::microseconds kYieldFor{100};
// A sleeper looks again this often even if nobody wakes it: the wait of a destroyed stream has no
// other way to end.
constexpr std::timespec kSleepAtMost{.tv_sec = 0, .tv_nsec = 5'000'000};

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

void sleep_while(Word& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, &kSleepAtMost, nullptr, 0);
}

void wake_all(Word& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr, nullptr,
          0);
}

/// Returns when done() holds. Whoever makes it hold changes `word` and then wakes the sleepers.
template <class Done>
void await(Word& word, Word& sleepers, Done done) {
  for (int i = 0; i < kSpins; ++i) {
    if (done()) return;
    relax();
  }
  const auto until = std::chrono::steady_clock::now() + kYieldFor;
  do {
    if (done()) return;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < until);
  sleepers.fetch_add(1);  // sequentially consistent against change-then-look in announce()
  for (;;) {
    const std::uint32_t seen = word.load();
    if (done()) break;
    sleep_while(word, seen);
  }
  sleepers.fetch_sub(1);
}

/// Makes a change of `word` known. The system call is made only if somebody sleeps.
void announce(Word& word, const Word& sleepers) {
  if (sleepers.load() != 0) wake_all(word);
}

}  // namespace

void Event::complete(std::uint32_t state) {
  reached_.store(state);
  announce(reached_, sleepers_);
}

void Event::set() { complete(kReached); }

void Event::fail(std::exception_ptr error) {
  error_ = std::move(error);
  complete(kFailed);
}

std::exception_ptr Event::error() const {
  return reached_.load(std::memory_order_acquire) == kFailed ? error_ : nullptr;
}

void Event::reset() {
  error_ = nullptr;
  reached_.store(0, std::memory_order_release);
}

void Event::wait_unless(const std::atomic<bool>& abandoned) {
  await(reached_, sleepers_,
        [&] { return reached() || abandoned.load(std::memory_order_relaxed); });
}

namespace {

/// What both kinds of stream do with a task, an event to record and an event to wait for.
class Work {
 public:
  void run(Task task) noexcept {
    if (error_ || abandoned_.load(std::memory_order_relaxed)) return;
    try {
      task.run(task.argument);
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  void record(Event& event) noexcept {
    if (error_) {
      event.fail(error_);
    } else {
      event.set();
    }
  }

  void wait(Event& event) noexcept {
    if (error_) return;
    event.wait_unless(abandoned_);
    error_ = event.error();
  }

  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

  /// The first error, once.
  std::exception_ptr take_error() { return std::exchange(error_, nullptr); }

 private:
  std::exception_ptr error_;
  std::atomic<bool> abandoned_{false};
};

void rethrow(std::exception_ptr error) {
  if (error) std::rethrow_exception(std::move(error));
}

class InlineStream final : public Stream {
 public:
  void submit(Task task) override { work_.run(task); }
  void record(Event& event) override { work_.record(event); }
  void wait(Event& event) override { work_.wait(event); }
  void synchronize() override { rethrow(work_.take_error()); }

 private:
  Work work_;
};

struct Item {
  enum class Kind : std::uint8_t { task, record, wait, stop } kind = Kind::task;
  Task task;
  Event* event = nullptr;
};

/// A FIFO in a ring that doubles when it is full: a producer never waits, as what it would wait for
/// might be its own next call. After the first iterations of a program nothing grows any more.
class Ring {
 public:
  void push(const Item& item) {
    if (count_ == items_.size()) grow();
    items_[(first_ + count_) % items_.size()] = item;
    ++count_;
  }
  Item pop() {
    const Item item = items_[first_];
    first_ = (first_ + 1) % items_.size();
    --count_;
    return item;
  }

 private:
  void grow() {
    std::vector<Item> larger(items_.size() * 2);
    for (std::size_t i = 0; i < count_; ++i) larger[i] = items_[(first_ + i) % items_.size()];
    items_ = std::move(larger);
    first_ = 0;
  }

  std::vector<Item> items_ = std::vector<Item>(1024);
  std::size_t first_ = 0, count_ = 0;
};

class WorkerStream final : public Stream {
 public:
  WorkerStream() : thread_([this] { serve(); }) {}

  /// Ends the running task; what is still queued is dropped, as its arguments may be gone.
  ~WorkerStream() override {
    work_.abandon();
    push({Item::Kind::stop, {}, nullptr});
    thread_.join();
  }

  void submit(Task task) override { push({Item::Kind::task, task, nullptr}); }
  void record(Event& event) override { push({Item::Kind::record, {}, &event}); }
  void wait(Event& event) override { push({Item::Kind::wait, {}, &event}); }

  void synchronize() override {
    const std::uint32_t target = pushed_.load();
    await(finished_, finished_sleepers_, [&] { return finished_.load() == target; });
    rethrow(work_.take_error());
  }

 private:
  void push(const Item& item) {
    {
      const std::lock_guard lock(mutex_);
      ring_.push(item);
    }
    pushed_.fetch_add(1);
    announce(pushed_, pushed_sleepers_);
  }

  Item pop() {
    const std::lock_guard lock(mutex_);
    return ring_.pop();
  }

  void serve() {
    std::uint32_t served = 0;
    for (;;) {
      await(pushed_, pushed_sleepers_, [&] { return pushed_.load() != served; });
      const Item item = pop();
      if (item.kind == Item::Kind::stop) return;
      serve_item(item);
      finished_.store(++served);
      announce(finished_, finished_sleepers_);
    }
  }

  void serve_item(const Item& item) {
    switch (item.kind) {
      case Item::Kind::task:
        return work_.run(item.task);
      case Item::Kind::record:
        return work_.record(*item.event);
      case Item::Kind::wait:
        return work_.wait(*item.event);
      case Item::Kind::stop:
        return;
    }
  }

  Work work_;
  std::mutex mutex_;
  Ring ring_;
  Word pushed_{0}, pushed_sleepers_{0};  // items ever pushed (modulo 2^32), the worker if it sleeps
  Word finished_{0}, finished_sleepers_{0};  // items ever done, callers of synchronize() that sleep
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Stream> make_stream(StreamKind kind) {
  if (kind == StreamKind::inline_) return std::make_unique<InlineStream>();
  return std::make_unique<WorkerStream>();
}

}  // namespace weft
