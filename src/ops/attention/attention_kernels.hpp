#pragma once
#include <bit>
#include <cstdint>

#include "lockstep/base/real.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"
#include "ops/dropout/dropout_kernels.hpp"

namespace lockstep::ops {

/// The draws that drop the weights of one sequence's heads, T positions each. Row i of head h uses group h head_groups
/// + i row_groups and the groups after it. If rows are short, group_rows of them share group h head_groups + i /
/// group_rows.
struct WeightDraws {
  std::uint64_t group_rows = 1, row_groups = 1, head_groups = 1;
  WeightDraws() = default;
  explicit WeightDraws(std::int64_t time) {
    constexpr std::uint64_t kDraws = 2 * cpu::kGroupWords, kShortest = 16;
    const auto t = static_cast<std::uint64_t>(time), padded = std::bit_ceil(t < kShortest ? kShortest : t);
    group_rows = padded < kDraws ? kDraws / padded : 1;
    row_groups = (t + kDraws - 1) / kDraws;
    head_groups = row_groups * ((t + group_rows - 1) / group_rows);
  }
};

namespace cpu {

/// One head of one sequence: T positions of D columns.
template <class T>
struct AttentionHead {
  std::int64_t time = 0, width = 0;
  T scale = 1;
  const T *q = nullptr, *k = nullptr, *v = nullptr;
  std::int64_t stride = 0;  ///< of q, k, v and their gradients
  T* y = nullptr;
  std::int64_t y_stride = 0;  ///< of y and dy
  T* lse = nullptr;           ///< (T), or null
  const T* dy = nullptr;
  T *dq = nullptr, *dk = nullptr, *dv = nullptr;
  bool add = false;  ///< whether dq, dk and dv are added to, not stored
  /// Dropout, see WeightDraws. first_group is the first group of the head.
  bool drop = false;
  PhiloxKey key;
  DropRate rate{0};
  std::uint64_t first_group = 0, row_groups = 1, group_rows = 1;
};

template <class T>
struct AttentionKernels {
  void (*forward)(const AttentionHead<T>& head);
  void (*backward)(const AttentionHead<T>& head);
};

LOCKSTEP_KERNELS(AttentionKernels, attention_kernels)

}  // namespace cpu

namespace cuda {

/// Widest head that the kernels support, in columns.
inline constexpr std::int64_t kMostHeadColumns = 128;

}  // namespace cuda
}  // namespace lockstep::ops
