#pragma once
#include <cstdint>

#include "dispatch.hpp"
#include "dropout_kernels.hpp"

namespace lockstep::ops::cpu {

/// One head of one sequence: T positions of D columns; rows of an array lie its stride apart.
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
  T *dq = nullptr, *dk = nullptr, *dv = nullptr;  ///< null when not wanted
  bool add_dq = false, add_dk = false, add_dv = false;
  /// Dropout: rows i of the weights have the draws of groups first_group + i row_groups and following, or, where rows are
  /// short, group_rows of them share the group first_group + i / group_rows.
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

LOCKSTEP_EACH_ISA(template <class T> AttentionKernels<T> attention_kernels();)

template <class T>
AttentionKernels<T> active_attention_kernels() {
  return LOCKSTEP_ACTIVE(attention_kernels<T>());
}

}  // namespace lockstep::ops::cpu
