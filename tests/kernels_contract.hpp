// What every kernel backend must do, as suites over (backend, storage type). A new backend is one
// more line in backend_cases(): every suite of tests/kernels_{gemm,elementwise,moe,optimizer}.cpp
// then runs on it.
//
// Operands are matrices with gaps between their rows; run() checks that gaps and inputs are left
// alone and that running does not allocate. Expected values come from formulas in double over the
// stored (rounded) inputs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/backend.hpp"

namespace weft::test {

struct BackendCase {
  const char* name;
  std::unique_ptr<KernelBackend> (*make)();
  void (*copy)(void* to, const void* from,
               std::size_t bytes);  // between host and the backend's memory, both ways
};

inline std::vector<BackendCase> backend_cases() {
  return {{"host", make_host_backend,
           [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }}};
}

/// Calls of operator new on this thread so far (tests/kernels_allocation.cpp).
std::size_t allocations();

/// Row-major values and how they are stored.
struct Matrix {
  Index rows = 0, cols = 0;
  DType dtype = DType::f32;
  std::vector<double> values;
  Index gap = 3;  // unused elements behind each row

  double at(Index row, Index col) const {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
  double& at(Index row, Index col) { return values[static_cast<std::size_t>(row * cols + col)]; }
};

inline double rounded(double value, DType dtype) {
  std::byte bytes[4];
  store_element(bytes, dtype, 0, value);
  return load_element(bytes, dtype, 0);
}

/// Values in (-scale, scale) from a linear congruential generator; `salt` tells operands apart.
inline Matrix random_matrix(Index rows, Index cols, DType dtype, std::uint32_t salt,
                            double scale = 1.0) {
  Matrix m{rows, cols, dtype, std::vector<double>(static_cast<std::size_t>(rows * cols))};
  std::uint32_t state = salt * 2654435761u + 12345u;
  for (double& value : m.values) {
    state = state * 1664525u + 1013904223u;
    value = rounded(scale * (static_cast<double>(state >> 8) / 0x1p23 - 1.0), dtype);
  }
  return m;
}

/// An output: NaN (or INT_MIN) everywhere, so that reading it or leaving it out is seen.
inline Matrix empty_matrix(Index rows, Index cols, DType dtype) {
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  return {rows, cols, dtype, std::vector<double>(static_cast<std::size_t>(rows * cols), nothing)};
}

inline Matrix matrix_of(Index rows, Index cols, DType dtype, std::vector<double> values) {
  for (double& value : values) value = rounded(value, dtype);
  return {rows, cols, dtype, std::move(values)};
}

inline Matrix integers_of(Index rows, Index cols, std::vector<double> values) {
  Matrix m = matrix_of(rows, cols, DType::i32, std::move(values));
  m.gap = 0;
  return m;
}

/// Same bits, NaN equal to NaN.
inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

class KernelContract : public testing::TestWithParam<std::tuple<BackendCase, DType>> {
 protected:
  KernelContract() : backend_(std::get<0>(GetParam()).make()) {}

  DType dtype() const { return std::get<1>(GetParam()); }
  KernelBackend& backend() { return *backend_; }

  /// Runs the operation `times` times on `in` and `out`, whose values it replaces by the results.
  /// An output that is an input too (the same Matrix object) shares its memory.
  void run(const Compute& op, std::vector<Matrix*> in, std::vector<Matrix*> out, int times = 1) {
    Arena arena(backend().space(), room(in) + room(out));
    std::vector<Placed> placed;
    std::vector<BoundView> in_views, out_views;
    for (Matrix* m : in) in_views.push_back(place(*m, arena, placed));
    for (Matrix* m : out) out_views.push_back(place(*m, arena, placed));
    const auto bound = backend().bind(op, in_views, out_views);
    const std::size_t before = allocations();
    for (int i = 0; i < times; ++i) bound->run();
    EXPECT_EQ(allocations(), before) << "run() allocated";
    for (const Placed& p : placed) {
      const bool written = std::find(out.begin(), out.end(), p.matrix) != out.end();
      fetch(p, written);
    }
  }

  /// |actual - expected| within one rounding to storage and `units` f32 roundings of terms of size
  /// `magnitude`.
  static void expect_close(double actual, double expected, DType dtype, double units,
                           double magnitude, Index row, Index col) {
    const double tiny = dtype == DType::f16 ? 0x1p-25 : 0x1p-120;
    const double bound =
        unit_roundoff(dtype) * std::fabs(expected) * 1.001 + units * 0x1p-24 * magnitude + tiny;
    EXPECT_TRUE(std::fabs(actual - expected) <= bound)
        << "(" << row << ", " << col << "): " << actual << ", expected " << expected << " within "
        << bound;
  }

  /// expected(row, col) and magnitude(row, col) for each element of `actual`.
  using Formula = std::function<double(Index, Index)>;
  static void expect_all(const Matrix& actual, const Formula& expected, double units,
                         const Formula& magnitude) {
    for (Index r = 0; r < actual.rows; ++r) {
      for (Index c = 0; c < actual.cols; ++c) {
        expect_close(actual.at(r, c), expected(r, c), actual.dtype, units, magnitude(r, c), r, c);
        if (testing::Test::HasFailure()) return;
      }
    }
  }

 private:
  struct Placed {
    Matrix* matrix;
    BoundView view;
  };
  static constexpr double kGuard = 77.0;

  static Bytes room(const std::vector<Matrix*>& list) {
    Bytes bytes = 0;
    for (const Matrix* m : list) bytes += (m->rows * (m->cols + m->gap) + 1) * 4 + 256;
    return bytes;
  }

  BoundView place(Matrix& m, Arena& arena, std::vector<Placed>& placed) {
    for (const Placed& p : placed) {
      if (p.matrix == &m) return p.view;
    }
    const Index ld = m.cols + m.gap;
    std::vector<std::byte> host(static_cast<std::size_t>(m.rows * ld * size_of(m.dtype)));
    for (Index r = 0; r < m.rows; ++r) {
      for (Index c = 0; c < ld; ++c) {
        store_element(host.data(), m.dtype, r * ld + c, c < m.cols ? m.at(r, c) : kGuard);
      }
    }
    const auto block = arena.take(static_cast<Bytes>(host.size()));
    if (!host.empty()) std::get<0>(GetParam()).copy(block.data(), host.data(), host.size());
    placed.push_back({&m, {block.data(), m.dtype, m.rows, m.cols, ld}});
    return placed.back().view;
  }

  void fetch(const Placed& p, bool written) {
    const BoundView& v = p.view;
    std::vector<std::byte> host(static_cast<std::size_t>(v.rows * v.ld * size_of(v.dtype)));
    if (!host.empty()) std::get<0>(GetParam()).copy(host.data(), v.data, host.size());
    for (Index r = 0; r < v.rows; ++r) {
      for (Index c = 0; c < v.ld; ++c) {
        const double value = load_element(host.data(), v.dtype, r * v.ld + c);
        if (c >= v.cols) {
          EXPECT_EQ(value, kGuard) << "wrote into the gap behind row " << r;
        } else if (written) {
          p.matrix->at(r, c) = value;
        } else {
          EXPECT_TRUE(same(value, p.matrix->at(r, c))) << "changed an input at " << r << ", " << c;
        }
      }
    }
  }

  std::unique_ptr<KernelBackend> backend_;
};

/// "host_bf16"
inline std::string case_name(const testing::TestParamInfo<KernelContract::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" +
         std::string(to_string(std::get<1>(info.param)));
}

inline auto every_case() {
  return testing::Combine(testing::ValuesIn(backend_cases()),
                          testing::Values(DType::f32, DType::bf16, DType::f16));
}

}  // namespace weft::test
