// What an evaluation would cost, without doing it. Private to kernels/reference*.cpp.
#pragma once

#include "kernels/reference_evaluator.hpp"

namespace weft::reference {

/// Multiply-adds (about) that `rows` x `cols` elements of a tensor's final state need, with
/// everything that they depend on and nothing known yet. One pass from the last step to the first:
/// every step is asked for as many rows and columns as its most demanding reader needs, so shared
/// operands count once. An element that must be generated counts as four.
double cost_of(const Evaluator& evaluator, const View& view, Index rows, Index cols);

}  // namespace weft::reference
