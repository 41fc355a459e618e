#include "kernels/stream.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels_contract.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;

void count_up(void* argument) { ++*static_cast<int*>(argument); }
void throw_first(void*) { throw std::runtime_error("first"); }
void throw_second(void*) { throw std::runtime_error("second"); }
void nap(void*) { std::this_thread::sleep_for(20ms); }

std::string error_of(Stream& stream) {
  try {
    stream.synchronize();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
}

class AnyStream : public testing::TestWithParam<StreamKind> {
 protected:
  std::unique_ptr<Stream> stream_ = make_stream(GetParam());
};

TEST_P(AnyStream, RunsInOrder) {
  struct Append {
    std::vector<int>* list;
    int value;
  };
  std::vector<int> list;
  std::vector<Append> arguments;
  for (int i = 0; i < 5000; ++i) arguments.push_back({&list, i});
  for (Append& a : arguments) {
    stream_->submit({[](void* p) {
                       const auto& append = *static_cast<Append*>(p);
                       append.list->push_back(append.value);
                     },
                     &a});
  }
  stream_->synchronize();
  ASSERT_EQ(list.size(), 5000u);
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(list[static_cast<std::size_t>(i)], i);
}

TEST_P(AnyStream, SynchronizeWithNothingToDo) {
  stream_->synchronize();
  stream_->synchronize();
}

TEST_P(AnyStream, KeepsTheFirstErrorAndSkipsTheRest) {
  int count = 0;
  stream_->submit({count_up, &count});
  stream_->submit({throw_first, nullptr});
  stream_->submit({throw_second, nullptr});
  stream_->submit({count_up, &count});
  EXPECT_EQ(error_of(*stream_), "first");
  EXPECT_EQ(count, 1);
  stream_->submit({count_up, &count});
  EXPECT_EQ(error_of(*stream_), "") << "usable again";
  EXPECT_EQ(count, 2);
}

TEST_P(AnyStream, RecordSetsTheEventAfterTheWork) {
  int count = 0;
  Event done;
  EXPECT_FALSE(done.reached());
  stream_->submit({nap, nullptr});
  stream_->submit({count_up, &count});
  stream_->record(done);
  const auto other = make_stream(StreamKind::inline_);
  other->wait(done);
  EXPECT_TRUE(done.reached());
  EXPECT_EQ(count, 1);
  stream_->synchronize();
  done.reset();
  EXPECT_FALSE(done.reached());
}

TEST_P(AnyStream, AFailedStreamFailsThoseThatWaitForIt) {
  Event done;
  int count = 0;
  const auto other = make_stream(StreamKind::worker);
  other->wait(done);
  other->submit({count_up, &count});
  stream_->submit({throw_first, nullptr});
  stream_->record(done);
  EXPECT_EQ(error_of(*other), "first") << "nobody waits for ever, and the cause is kept";
  EXPECT_EQ(error_of(*stream_), "first");
  EXPECT_EQ(count, 0);
  done.reset();
  EXPECT_EQ(done.error(), nullptr);
}

TEST_P(AnyStream, AFailedStreamDoesNotWait) {
  Event never;
  stream_->submit({throw_first, nullptr});
  stream_->wait(never);
  EXPECT_EQ(error_of(*stream_), "first");
}

TEST_P(AnyStream, SubmittingDoesNotAllocate) {
  int count = 0;
  Event done;
  const std::size_t before = test::allocations();
  for (int i = 0; i < 300; ++i) {
    stream_->submit({count_up, &count});
    stream_->record(done);
    stream_->wait(done);
  }
  EXPECT_EQ(test::allocations(), before);
  stream_->synchronize();
  EXPECT_EQ(count, 300);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AnyStream, testing::Values(StreamKind::inline_, StreamKind::worker),
                         [](const auto& info) {
                           return info.param == StreamKind::worker ? "worker" : "inline";
                         });

TEST(InlineStream, RunsAtOnceOnTheCallersThread) {
  std::thread::id id;
  const auto stream = make_stream(StreamKind::inline_);
  stream->submit(
      {[](void* p) { *static_cast<std::thread::id*>(p) = std::this_thread::get_id(); }, &id});
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(WorkerStream, RunsBesideTheCaller) {
  const auto stream = make_stream(StreamKind::worker);
  Event go, done;
  int count = 0;
  stream->wait(go);
  stream->submit({count_up, &count});
  stream->record(done);
  EXPECT_FALSE(done.reached());
  go.set();
  stream->synchronize();
  EXPECT_TRUE(done.reached());
  EXPECT_EQ(count, 1);
}

TEST(WorkerStream, TheQueueGrowsWhileItsWorkerWaits) {
  const auto stream = make_stream(StreamKind::worker);
  Event go;
  int count = 0;
  stream->wait(go);
  for (int i = 0; i < 10000; ++i) stream->submit({count_up, &count});
  go.set();
  stream->synchronize();
  EXPECT_EQ(count, 10000);
  const std::size_t before = test::allocations();
  for (int i = 0; i < 5000; ++i) stream->submit({count_up, &count});
  EXPECT_EQ(test::allocations(), before) << "it stays as large as it was";
  stream->synchronize();
}

TEST(WorkerStream, CanBeDestroyedWhileItWaits) {
  Event never;
  int count = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto stream = make_stream(StreamKind::worker);
    stream->wait(never);
    stream->submit({count_up, &count});
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(count, 0) << "what was queued is dropped";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
}

TEST(WorkerStream, SleepsWhenItHasNothingToDo) {
  const auto idle = make_stream(StreamKind::worker), waiting = make_stream(StreamKind::worker);
  Event later;
  waiting->wait(later);
  std::this_thread::sleep_for(10ms);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(200ms);
  EXPECT_LT(cpu_seconds() - before, 0.05);
  later.set();
  waiting->synchronize();
}

// The shape of a run with overlap: two streams hand work to each other, more pairs than cores.
TEST(WorkerStream, ManyPairsHandWorkToEachOther) {
  constexpr int kPairs = 8, kRounds = 200;
  struct Pair {
    std::unique_ptr<Stream> compute = make_stream(StreamKind::worker),
                            comm = make_stream(StreamKind::worker);
    std::vector<Event> ready = std::vector<Event>(kRounds), done = std::vector<Event>(kRounds);
    int value = 0;  // guarded by the events alone
  };
  std::vector<Pair> pairs(kPairs);
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (Pair& pair : pairs) {
      for (std::size_t i = 0; i < kRounds; ++i) {
        pair.ready[i].reset();
        pair.done[i].reset();
      }
    }
    for (std::size_t i = 0; i < kRounds; ++i) {
      for (Pair& pair : pairs) {
        if (i > 0) pair.compute->wait(pair.done[i - 1]);
        pair.compute->submit({count_up, &pair.value});
        pair.compute->record(pair.ready[i]);
        pair.comm->wait(pair.ready[i]);
        pair.comm->submit({count_up, &pair.value});
        pair.comm->record(pair.done[i]);
      }
    }
    for (Pair& pair : pairs) {
      pair.compute->synchronize();
      pair.comm->synchronize();
      EXPECT_EQ(pair.value, 2 * kRounds * (iteration + 1));
    }
  }
}

TEST(WorkerStream, AcceptsWorkFromSeveralThreads) {
  const auto stream = make_stream(StreamKind::worker);
  int count = 0;
  std::vector<std::thread> producers;
  for (int p = 0; p < 3; ++p) {
    producers.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) stream->submit({count_up, &count});
    });
  }
  for (std::thread& producer : producers) producer.join();
  stream->synchronize();
  EXPECT_EQ(count, 3000);
}

}  // namespace
}  // namespace weft
