#pragma once
#include "device_functions.h"

// Tensor-core operations of a warp. Kernels use them through lockstep/device/cuda_mma.hpp, which defines the layout of
// matrices in registers.

namespace cuda_host {

enum class HalfKind : std::uint8_t { bf16, f16 };

/// ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16
void load_matrices(std::uint32_t (&to)[4], const void* row, bool transposed, Place place = Place::current());
/// mma.sync.aligned.m16n8k16.row.col.f32.{bf16.bf16|f16.f16}.f32, summed in the order of k
void multiply_add(HalfKind kind, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  Place place = Place::current());

}  // namespace cuda_host
