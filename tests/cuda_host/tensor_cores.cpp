#include <array>
#include <cstring>

#include "block_runner.hpp"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "error.hpp"
#include "ledger.hpp"
#include "memory.hpp"

namespace cuda_host {

namespace {
constexpr unsigned kAllLanes = ~0u;

/// A row of 8 halves as two 64-bit words.
using Row = std::array<std::uint64_t, 2>;
std::uint32_t half_of(std::uint64_t four, int i) {
  return static_cast<std::uint32_t>(four >> (16 * (i % 4)) & 0xffffu);
}

float to_float(HalfKind kind, std::uint32_t registers, int which) {
  const auto bits = static_cast<unsigned short>(registers >> (16 * which));
  return kind == HalfKind::bf16 ? __bfloat162float(__ushort_as_bfloat16(bits)) : __half2float(__ushort_as_half(bits));
}

/// A lane's registers for a and b.
struct Operands {
  const std::uint32_t* a;
  std::uint32_t b[2];
  float* c;
};
const Operands& operands_of(std::uint64_t bits) { return *from_bits<const Operands*>(bits); }

/// Computes the product of a whole warp on one lane.
void multiply_all(HalfKind kind, const std::uint64_t* given) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const Operands& own = operands_of(given[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i)
      for (int e = 0; e < 2; ++e) a[g + 8 * (i % 2)][2 * t + e + 8 * (i / 2)] = to_float(kind, own.a[i], e);
    for (int i = 0; i < 2; ++i)
      for (int e = 0; e < 2; ++e) b[2 * t + e + 8 * i][g] = to_float(kind, own.b[i], e);
  }
  for (int row = 0; row < 16; ++row) {
    float sums[8] = {};
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) sums[column] += a[row][k] * b[k][column];
    for (int column = 0; column < 8; ++column)
      operands_of(given[4 * (row % 8) + column / 2]).c[column % 2 + 2 * (row / 8)] += sums[column];
  }
}
}  // namespace

void load_matrices(std::uint32_t (&to)[4], const void* row, bool transposed, Place place) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    fault(cudaErrorMisalignedAddress, text("loads a row of a matrix from ", row, ", which is no multiple of 16"));
  if (in_own_range(row))
    fault(cudaErrorIllegalAddress,
          text("loads a row of a matrix, not from shared memory, but ", describe_address(row)));
  // Lanes exchange rows rather than addresses: a lane may overwrite its row as soon as it continues.
  Row own;
  std::memcpy(own.data(), row, sizeof own);
  const int g = lane() / 4, t = lane() % 4;
  for (int part = 0; part < 2; ++part) {  // columns 0 .. 3, 4 .. 7
    const std::uint64_t* given = warp_exchange(WarpOp::matrix, kAllLanes, own[static_cast<std::size_t>(part)], place);
    for (int m = 0; m < 4; ++m) {
      const std::uint64_t* matrix = given + 8 * m;
      if (transposed && g / 4 == part) to[m] = half_of(matrix[2 * t], g) | half_of(matrix[2 * t + 1], g) << 16;
      if (!transposed && t / 2 == part) to[m] = half_of(matrix[g], 2 * t) | half_of(matrix[g], 2 * t + 1) << 16;
    }
  }
}

void multiply_add(HalfKind kind, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  Place place) {
  const Operands own{a, {b0, b1}, c};
  const std::uint64_t* given = warp_exchange(WarpOp::matrix, kAllLanes, to_bits(&own), place);
  if (lane() == 0) {
    multiply_all(kind, given);
    count_tensor_flops(2.0 * 16 * 8 * 16);
  }
  warp_exchange(WarpOp::matrix, kAllLanes, 0, place);  // no lane leaves before the product is done
}

}  // namespace cuda_host
