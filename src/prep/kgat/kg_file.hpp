#pragma once
#include <cstdint>
#include <vector>

#include "lockstep/io/h5.hpp"

namespace lockstep::prep {

/// The type of an array that holds positions 0 .. entries-1: 32 bits where they suffice.
H5Type kg_index_type(std::int64_t entries);

/// Storage of an array: chunks of whole rows, about 1 Mi elements each; none for an empty array.
H5Layout kg_layout(const std::vector<std::int64_t>& shape, int deflate);

}  // namespace lockstep::prep
