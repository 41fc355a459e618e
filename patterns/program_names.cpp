#include "patterns/program.hpp"

namespace weft {

std::string_view to_string(Fill fill) {
  switch (fill) {
    case Fill::none:
      return "none";
    case Fill::zero:
      return "zero";
    case Fill::uniform:
      return "uniform";
    case Fill::positive:
      return "positive";
    case Fill::constant:
      return "constant";
    case Fill::values:
      return "values";
    case Fill::zipf_bias:
      return "zipf_bias";
  }
  return "?";
}

std::string_view to_string(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::gemm:
      return "gemm";
    case ComputeKind::grouped_gemm:
      return "grouped_gemm";
    case ComputeKind::grouped_wgrad:
      return "grouped_wgrad";
    case ComputeKind::bias:
      return "bias";
    case ComputeKind::activation:
      return "activation";
    case ComputeKind::activation_grad:
      return "activation_grad";
    case ComputeKind::softmax:
      return "softmax";
    case ComputeKind::softmax_grad:
      return "softmax_grad";
    case ComputeKind::layer_norm:
      return "layer_norm";
    case ComputeKind::top_k:
      return "top_k";
    case ComputeKind::top_k_grad:
      return "top_k_grad";
    case ComputeKind::count_tokens:
      return "count_tokens";
    case ComputeKind::permute:
      return "permute";
    case ComputeKind::permute_grad:
      return "permute_grad";
    case ComputeKind::unpermute:
      return "unpermute";
    case ComputeKind::unpermute_grad:
      return "unpermute_grad";
    case ComputeKind::relayout:
      return "relayout";
    case ComputeKind::split_layout:
      return "split_layout";
    case ComputeKind::reduce:
      return "reduce";
    case ComputeKind::column_sum:
      return "column_sum";
    case ComputeKind::copy:
      return "copy";
    case ComputeKind::scale:
      return "scale";
    case ComputeKind::add:
      return "add";
    case ComputeKind::sgd:
      return "sgd";
    case ComputeKind::adam:
      return "adam";
  }
  return "?";
}

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::all_to_all_v:
      return "all_to_all_v";
  }
  return "?";
}

}  // namespace weft
