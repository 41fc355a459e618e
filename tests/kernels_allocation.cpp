// Counts allocations, for the tests that say that something does not allocate.
#include <cstdlib>
#include <new>

#include "tests/kernels_contract.hpp"

namespace {
thread_local std::size_t calls = 0;

// Not inlined: the compiler would see malloc() paired with operator delete and warn.
[[gnu::noinline]] void* counted(std::size_t size) {
  ++calls;
  if (void* block = std::malloc(size == 0 ? 1 : size)) return block;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
// std::stable_sort's buffer: all forms from one allocator, or AddressSanitizer sees two that do not
// match.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }

namespace weft::test {

std::size_t allocations() { return calls; }

TEST(Allocations, AreCounted) {
  const std::size_t before = allocations();
  const auto block = std::make_unique<std::vector<int>>(10);
  EXPECT_EQ(block->size(), 10u);
  EXPECT_EQ(allocations(), before + 2);
}

}  // namespace weft::test
