// Carries out the compute operations of patterns/program.hpp on real memory: the host backend
// (OpenBLAS and own loops).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/buffer.hpp"
#include "kernels/stream.hpp"
#include "patterns/program.hpp"

namespace weft {

/// A View whose tensor has an address.
struct BoundView {
  std::byte* data = nullptr;  // first element of the block
  DType dtype = DType::f32;
  Index rows = 0, cols = 0, ld = 0;

  Index elements() const { return rows * cols; }
  Bytes bytes() const { return elements() * size_of(dtype); }
};

/// One compute operation with its operands bound and its scratch allocated: made once, run in every
/// iteration.
class BoundCompute {
 public:
  virtual ~BoundCompute() = default;
  /// Does the operation on the calling thread (BLAS may use more threads). Never allocates.
  virtual void run() = 0;
};

class KernelBackend {
 public:
  virtual ~KernelBackend() = default;
  virtual std::string_view name() const = 0;  // "host"
  virtual MemorySpace space() const = 0;
  /// Throws Error(usage), naming operation and operands, where shapes or types do not fit. run() of
  /// the result throws Error(failed) on run-time counts and indices that lie outside the tensors.
  virtual std::unique_ptr<BoundCompute> bind(const Compute& op, std::vector<BoundView> in,
                                             std::vector<BoundView> out) = 0;
  /// Threads a gemm uses.
  virtual void set_threads(int threads) = 0;
  /// "OpenBLAS 0.3.21 Zen, 1 thread": for the provenance.
  virtual std::string description() const = 0;
};

std::unique_ptr<KernelBackend> make_host_backend();

/// y[0..n) += x[0..n) and the like for communicators: out = sum over sources of n elements of
/// `dtype`, f32 accumulation, one pass, vectorised. `out` may be one of the sources.
void reduce_sum(std::byte* out, const std::byte* const* sources, int count, Index n, DType dtype);

/// The same into several outputs, each written once; `streaming`: past the caches. Whoever acquires
/// a flag that is released after the return sees all of it.
void reduce_sum_to_all(std::byte* const* outs, int out_count, const std::byte* const* sources,
                       int count, Index n, DType dtype, bool streaming);

/// Conversions between stored elements and double (round to nearest even).
double load_element(const std::byte* data, DType dtype, Index index);
void store_element(std::byte* data, DType dtype, Index index, double value);

}  // namespace weft
