#pragma once
#include "lockstep/io/h5.hpp"

namespace lockstep::prep {

/// The type of an array that holds positions 0 .. entries-1: 32 bits where they suffice.
H5Type kg_index_type(std::int64_t entries);

}  // namespace lockstep::prep
