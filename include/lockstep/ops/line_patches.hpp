#pragma once
#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

namespace lockstep::ops {

/// Pictures of at most three colours as bit masks, as samples/rasteriser.hpp draws them, possibly rotated. Pixel (x, y)
/// of picture n has colour 1 where its bit in `line` is set, colour 2 where its bit in `outside` is set, and colour 0
/// elsewhere.
struct LinePictures {
  std::int64_t count = 0;
  std::int64_t size = 0;                   ///< pixels per row and per column
  const std::uint32_t* line = nullptr;     ///< (count, mask_words(size)) of line_plot.hpp
  const std::uint32_t* outside = nullptr;  ///< the same, disjoint from line; or null
  const double* colours = nullptr;         ///< (count, 3, 3): red, green and blue of each colour
};

/// The embedding of non-overlapping patches of such pictures: a convolution with stride P, computed from the pixels
/// that are not paper.
///
///   y_ntd = bias_d + sum_c,i,j weight_d,c,i,j picture_n(c, P row + i, P column + j),   t = row (size / P) + column
///         = paper_nd + sum over pixels (i, j) of another colour k of sum_c (colour_kc - colour_0c) weight_d,c,i,j
///
/// where paper_n is the embedding of an empty patch. Pixels beyond the last whole patch at the right and at the bottom
/// are ignored. Pictures have no gradient.
///
/// shapes   y, dy (N, T, D), T = (size / P)^2; weight (D, 3, P, P); bias (D)
/// dtypes   f32 | f64, all equal; on a GPU also bf16 | f16, with gradients of weight and bias in f32
/// errors   Error naming the shapes if they do not fit
/// source   Dosovitskiy et al. 2021, arXiv:2010.11929, eq. 1
/// differs  from a convolution in the order of additions alone
void line_patches_forward(Stream&, const Tensor& y, const LinePictures& pictures, const Tensor& weight,
                          const Tensor& bias);
/// dweight and dbias are added to; an empty target is not computed.
void line_patches_backward(Stream&, Target dweight, Target dbias, const Tensor& dy, const LinePictures& pictures);

}  // namespace lockstep::ops
