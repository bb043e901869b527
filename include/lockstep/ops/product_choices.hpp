#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/device/device.hpp"

namespace lockstep::ops {

/// The algorithms by which cuBLASLt computes the matrix products of the calling thread on a GPU. By default they are
/// the library's first choice for each shape.
///
/// While products are tuned, the first product of a shape, unless a graph captures it, times up to eight algorithms on
/// its own operands, and its shape keeps the fastest one. The next run may find another one faster, whose bits differ.
/// The choices are therefore data: a run that records product_choices() and gives them to recall_product_choices() has
/// the same bits for these shapes.
/// Timing waits for all work of the stream.
///
/// A choice is a line of text, "LIBRARY, GPU: SHAPE = ALGORITHM". It has no effect on another GPU or with another
/// version of the library.

/// Begins or ends the tuning of the calling thread's products, and forgets its choices.
void tune_products(bool on);
bool products_are_tuned();
/// The choices of the calling thread, in alphabetical order. Empty unless products are tuned.
std::vector<std::string> product_choices();
/// Adds choices, and replaces those of the same shape. Returns how many of them this library uses on this GPU.
/// errors   Error (data): a line that is no choice
std::int64_t recall_product_choices(Device gpu, const std::vector<std::string>& choices);

}  // namespace lockstep::ops
