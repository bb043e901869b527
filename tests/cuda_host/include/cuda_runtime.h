#pragma once
// The part of the CUDA runtime that Lockstep uses, on the host's processor: what nvcc's header of this name offers to a
// .cu file. docs/cuda-host.md says how it works and what it detects.
#include <cmath>

#include "cuda_host/qualifiers.h"
#include "cuda_host/vector_types.h"
// (these need the two above)
#include "cuda_host/device_functions.h"
#include "cuda_host/device_math.h"
#include "cuda_host/runtime_api.h"
#include "cuda_host/tensor_cores.h"
