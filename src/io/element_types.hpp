#pragma once
#include <cstdint>

/// Applies a macro to each number type of datasets.
#define LOCKSTEP_EACH_ELEMENT(X) X(std::uint8_t) X(std::int32_t) X(std::int64_t) X(float) X(double)
