#pragma once
#include <cstdint>

#include "lockstep/device/device.hpp"
#include "lockstep/ops/dispatch.hpp"

namespace lockstep::ops::cpu {

/// A row as 8-bit codes: row - centre = scale q + rest, with integers q of at most `levels`.
struct Codes {
  double square = 0;       ///< |row|^2
  double part_square = 0;  ///< |row - centre|^2
  double code_square = 0;  ///< |q|^2
  double rest_square = 0;  ///< |rest|^2
  double dot = 0;          ///< (row - centre) . typical
  std::int32_t code_sum = 0;
};

template <class T>
struct TopItemsKernels {
  /// max_d |x_d - centre_d|, or NaN or infinity if a value is.
  T (*widest)(std::int64_t d, const T* x, const T* centre);
  /// q (d) = (x - centre) / scale rounded, each plus `offset`. typical may be null.
  Codes (*encode)(std::int64_t d, const T* x, const T* centre, const T* typical, double scale, std::int32_t offset,
                  std::uint8_t* q);
  /// Appends the numbers first + i of the scores (n) above `limit`, ascending, and these scores. Returns how many.
  /// Writes up to kMostLanes elements more.
  std::int64_t (*above)(std::int64_t n, const float* scores, float limit, std::int32_t first, std::int32_t* item,
                        float* score);
  /// lower_i = score_i - 2 (codes rest_i + rest part_i), with rest_i and part_i of item item_i.
  void (*lower)(std::int64_t n, const std::int32_t* item, const float* score, float codes, float rest,
                const float* item_rest, const float* item_part, float* lower);
  /// A limit that at least k of n >= k finite scores reach. At most k + slack exceed it unless scores are equal.
  float (*limit)(std::int64_t n, std::int64_t k, std::int64_t slack, const float* score);
  /// Moves the candidates above `limit` to the front without reordering them. Returns how many.
  std::int64_t (*select)(std::int64_t n, float limit, std::int32_t* item, float* score);
  /// score_i = user . row item_i (d) with the bits of a product of matrices: one chain of multiply-adds over d,
  /// ascending.
  void (*exact)(std::int64_t n, std::int64_t d, const T* rows, const T* user, const std::int32_t* item, T* score);
  /// Moves the best k of n > k candidates to the front without reordering them; the first ones win a tie.
  void (*keep)(std::int64_t n, std::int64_t k, std::int32_t* item, T* score);
  /// rank_i = the number of better candidates; the first ones win a tie. Reads and writes up to kMostLanes elements too
  /// many.
  void (*rank)(std::int64_t n, const T* score, std::int32_t* rank);
};
inline constexpr std::int64_t kMostLanes = 16;

/// Products of 8-bit codes. Sums are exact, so every kernel gives the same bits.
struct CodeProduct {
  std::int64_t users, groups;  ///< groups: of four columns
  std::int64_t first, count;   ///< items; multiples of panel
  /// (users, count) = scale_u scale_i (begin_u + q_u . q_i) + bias_i + error_ui with error_ui = codes_u rest_i + rest_u
  /// part_i
  float* scores;
  const std::int32_t* user;           ///< blocks of `tile` users, padded: (groups, tile, 4) codes
  const std::int32_t* begin;          ///< (users)
  const float *scale, *codes, *rest;  ///< (users)
  const std::uint8_t* item;           ///< panels of items: (groups, panel, 4) codes plus the offset
  const float *bias, *item_scale, *item_rest, *item_part;  ///< by item
};
struct CodeKernels {
  std::int32_t levels;  ///< largest code of an item; 0: this instruction set has no fast product of bytes
  std::int32_t offset;  ///< makes codes of items unsigned
  std::int64_t panel, tile;
  void (*product)(const CodeProduct& p);
};
/// Largest code of a user.
inline constexpr std::int32_t kUserLevels = 127;

LOCKSTEP_KERNELS(TopItemsKernels, top_items_kernels)
LOCKSTEP_EACH_ISA(const CodeKernels& code_kernels();)
inline const CodeKernels& active_code_kernels() { return LOCKSTEP_ACTIVE(code_kernels()); }

}  // namespace lockstep::ops::cpu
