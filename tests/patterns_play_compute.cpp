// The compute operations of patterns/program.hpp as plain loops over doubles.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "patterns/error.hpp"
#include "patterns_play.hpp"

namespace weft::play {

namespace {

double gelu(double z) { return 0.5 * z * std::erfc(-z * M_SQRT1_2); }
double gelu_grad(double z) {
  return 0.5 * std::erfc(-z * M_SQRT1_2) + z * std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
}
double act(Activation a, double z) {
  return a == Activation::relu ? std::max(0.0, z) : a == Activation::gelu ? gelu(z) : z;
}
double act_grad(Activation a, double z) {
  return a == Activation::relu ? (z > 0 ? 1.0 : 0.0) : a == Activation::gelu ? gelu_grad(z) : 1.0;
}
double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

}  // namespace

void World::compute(int rank, const Compute& op) {
  const auto in = [&](std::size_t i, Index r, Index c) -> double {
    return cell(rank, op.in[i], r, c);
  };
  const auto out = [&](std::size_t i, Index r, Index c) -> double& {
    return cell(rank, op.out[i], r, c);
  };
  const View& a = op.in[0];
  const View& y = op.out[0];
  const auto each = [&](auto&& body) {
    for (Index r = 0; r < y.rows; ++r) {
      for (Index c = 0; c < y.cols; ++c) body(r, c);
    }
  };
  // Rows in the order that permute gives them: by expert, then token, then choice.
  const auto order = [&](const View& idx) {
    std::vector<std::pair<Index, Index>> rows;
    for (Index t = 0; t < idx.rows; ++t) {
      for (Index c = 0; c < idx.cols; ++c) rows.emplace_back(t, c);
    }
    std::stable_sort(rows.begin(), rows.end(), [&](auto l, auto r) {
      return cell(rank, idx, l.first, l.second) < cell(rank, idx, r.first, r.second);
    });
    return rows;
  };
  const auto segments = [&](const View& counts, auto&& body) {
    Index row = 0;
    for (Index s = 0; s < counts.elements(); ++s) {
      const auto n = static_cast<Index>(flat_cell(rank, counts, s));
      body(row, n, s % op.experts);
      row += n;
    }
  };
  switch (op.kind) {
    case ComputeKind::gemm:
      each([&](Index r, Index c) {
        double sum = op.accumulate ? out(0, r, c) : 0;
        const Index k = op.trans_a ? a.rows : a.cols;
        for (Index i = 0; i < k; ++i) {
          sum +=
              (op.trans_a ? in(0, i, r) : in(0, r, i)) * (op.trans_b ? in(1, c, i) : in(1, i, c));
        }
        out(0, r, c) = sum;
      });
      return;
    case ComputeKind::grouped_gemm: {
      const Index stack = op.in[1].rows / op.experts;
      segments(op.in[2], [&](Index first, Index n, Index e) {
        for (Index r = first; r < first + n; ++r) {
          for (Index c = 0; c < y.cols; ++c) {
            double sum = 0;
            for (Index k = 0; k < a.cols; ++k) {
              sum += in(0, r, k) * (op.trans_b ? in(1, e * stack + c, k) : in(1, e * stack + k, c));
            }
            out(0, r, c) = sum;
          }
        }
      });
      return;
    }
    case ComputeKind::grouped_wgrad:
      if (!op.accumulate) each([&](Index r, Index c) { out(0, r, c) = 0; });
      segments(op.in[2], [&](Index first, Index n, Index e) {
        for (Index i = 0; i < a.cols; ++i) {
          for (Index j = 0; j < op.in[1].cols; ++j) {
            for (Index r = first; r < first + n; ++r)
              out(0, e * a.cols + i, j) += in(0, r, i) * in(1, r, j);
          }
        }
      });
      return;
    case ComputeKind::bias:
      return each([&](Index r, Index c) { out(0, r, c) = in(0, r, c) + in(1, 0, c); });
    case ComputeKind::activation:
      return each([&](Index r, Index c) {
        const double z = in(0, r, c);
        out(0, r, c) = op.act == Activation::swiglu ? z * sigmoid(z) * in(1, r, c) : act(op.act, z);
      });
    case ComputeKind::activation_grad:
      return each([&](Index r, Index c) {
        const double d = in(0, r, c), z = in(1, r, c);
        if (op.act != Activation::swiglu) {
          out(0, r, c) = d * act_grad(op.act, z);
          return;
        }
        const double u = in(2, r, c), s = sigmoid(z);
        out(0, r, c) = d * u * (s + z * s * (1 - s));
        out(1, r, c) = d * z * s;
      });
    case ComputeKind::softmax:
      for (Index r = 0; r < y.rows; ++r) {
        double total = 0;
        for (Index c = 0; c < y.cols; ++c) total += std::exp(in(0, r, c));
        for (Index c = 0; c < y.cols; ++c) out(0, r, c) = std::exp(in(0, r, c)) / total;
      }
      return;
    case ComputeKind::softmax_grad:
      for (Index r = 0; r < y.rows; ++r) {
        double dot = 0;
        for (Index c = 0; c < y.cols; ++c) dot += in(0, r, c) * in(1, r, c);
        for (Index c = 0; c < y.cols; ++c) out(0, r, c) = in(1, r, c) * (in(0, r, c) - dot);
      }
      return;
    case ComputeKind::top_k:
      for (Index r = 0; r < a.rows; ++r) {
        std::vector<Index> rank_of(static_cast<std::size_t>(a.cols));
        std::iota(rank_of.begin(), rank_of.end(), Index{0});
        std::stable_sort(rank_of.begin(), rank_of.end(),
                         [&](Index l, Index m) { return in(0, r, l) > in(0, r, m); });
        double total = 0;
        for (Index c = 0; c < y.cols; ++c) {
          out(0, r, c) = static_cast<double>(rank_of[static_cast<std::size_t>(c)]);
          total += out(1, r, c) = in(0, r, rank_of[static_cast<std::size_t>(c)]);
        }
        for (Index c = 0; c < y.cols && op.normalize; ++c) out(1, r, c) /= total;
      }
      return;
    case ComputeKind::top_k_grad:
      each([&](Index r, Index c) { out(0, r, c) = 0; });
      for (Index r = 0; r < y.rows; ++r) {
        double total = 0, dot = 0;
        const auto expert = [&](Index c) { return static_cast<Index>(in(1, r, c)); };
        for (Index c = 0; c < a.cols; ++c) total += in(2, r, expert(c));
        for (Index c = 0; c < a.cols; ++c) dot += in(0, r, c) * in(2, r, expert(c)) / total;
        for (Index c = 0; c < a.cols; ++c) {
          out(0, r, expert(c)) = op.normalize ? (in(0, r, c) - dot) / total : in(0, r, c);
        }
      }
      return;
    case ComputeKind::count_tokens:
      for (Index e = 0; e < y.elements(); ++e) flat_cell(rank, y, e) = 0;
      for (Index e = 0; e < a.elements(); ++e)
        flat_cell(rank, y, static_cast<Index>(flat_cell(rank, a, e))) += 1;
      return;
    case ComputeKind::permute: {
      const auto rows = order(op.in[1]);
      each([&](Index r, Index c) {
        out(0, r, c) = in(0, rows[static_cast<std::size_t>(r)].first, c);
      });
      return;
    }
    case ComputeKind::permute_grad: {
      const auto rows = order(op.in[1]);
      if (!op.accumulate) each([&](Index r, Index c) { out(0, r, c) = 0; });
      for (std::size_t s = 0; s < rows.size(); ++s) {
        for (Index c = 0; c < y.cols; ++c)
          out(0, rows[s].first, c) += in(0, static_cast<Index>(s), c);
      }
      return;
    }
    case ComputeKind::unpermute: {
      const auto rows = order(op.in[1]);
      each([&](Index r, Index c) { out(0, r, c) = 0; });
      for (std::size_t s = 0; s < rows.size(); ++s) {
        const auto [t, k] = rows[s];
        for (Index c = 0; c < y.cols; ++c)
          out(0, t, c) += in(2, t, k) * in(0, static_cast<Index>(s), c);
      }
      return;
    }
    case ComputeKind::unpermute_grad: {
      const auto rows = order(op.in[2]);
      for (std::size_t s = 0; s < rows.size(); ++s) {
        const auto [t, k] = rows[s];
        double dot = 0;
        for (Index c = 0; c < y.cols; ++c) {
          dot += in(0, t, c) * in(1, static_cast<Index>(s), c);
          out(0, static_cast<Index>(s), c) = in(3, t, k) * in(0, t, c);
        }
        out(1, t, k) = dot;
      }
      return;
    }
    case ComputeKind::relayout: {
      Index before = 0;
      for (Index width : op.counts) {
        for (Index r = 0; r < y.rows; ++r) {
          for (Index c = 0; c < width; ++c) {
            out(0, r, before + c) = flat_cell(rank, a, before * y.rows + r * width + c);
          }
        }
        before += width;
      }
      return;
    }
    case ComputeKind::column_sum:
      for (Index c = 0; c < y.cols; ++c) {
        double sum = 0;
        for (Index r = 0; r < a.rows; ++r) sum += in(0, r, c);
        out(0, 0, c) = sum;
      }
      return;
    case ComputeKind::copy:
      return each([&](Index r, Index c) { out(0, r, c) = in(0, r, c); });
    case ComputeKind::scale:
      return each([&](Index r, Index c) { out(0, r, c) = op.factor * in(0, r, c); });
    case ComputeKind::add:
      return each([&](Index r, Index c) { out(0, r, c) = in(0, r, c) + in(1, r, c); });
    case ComputeKind::sgd:
      return each([&](Index r, Index c) { out(0, r, c) -= op.factor * in(1, r, c); });
    case ComputeKind::adam:
      return each([&](Index r, Index c) {
        const double g = in(1, r, c);
        const double m = out(1, r, c) = 0.9 * in(2, r, c) + 0.1 * g;
        const double v = out(2, r, c) = 0.999 * in(3, r, c) + 0.001 * g * g;
        const double m1 = m / (1 - std::pow(0.9, op.step)), v1 = v / (1 - std::pow(0.999, op.step));
        out(0, r, c) -= op.factor * m1 / (std::sqrt(v1) + 1e-8);
      });
    default:
      fail(ExitCode::failed, fmt::format("{} is not played", to_string(op.kind)));
  }
}

}  // namespace weft::play
