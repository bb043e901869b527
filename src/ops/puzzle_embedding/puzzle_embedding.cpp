#include "lockstep/ops/puzzle_embedding.hpp"

#include <algorithm>

#include "ops/common/on_gpu.hpp"
#include "puzzle_embedding_kernels.hpp"

namespace lockstep::ops {

namespace {

cuda::PuzzleShape shape_of(const char* what, const Tensor& x, const PuzzleEmbedding& e) {
  const std::int64_t batch = e.ids.size(), cells = e.tokens.columns(), d = x.columns(),
                     width = e.puzzles ? e.puzzles.columns() : 0;
  const std::int64_t prefix = x.shape().rank() == 3 ? x.shape()[1] - cells : -1;
  require(x.shape().rank() == 3 && x.shape()[0] == batch && e.tokens.shape() == Shape{batch, cells} && prefix >= 0 &&
              width <= prefix * d && e.table.shape().rank() == 2 && e.table.columns() == d &&
              (!e.where || e.where.shape() == Shape{x.shape()[1], d}),
          what, ": x is ", x.shape(), ", the tables ", e.table.shape(), ", ", e.puzzles.shape(), " and ",
          e.where.shape(), ", tokens are ", e.tokens.shape(), ", ids ", e.ids.shape(), "; these do not fit together");
  const std::int64_t vocabulary = e.table.shape()[0];
  const auto* tokens = e.tokens.data<std::int32_t>();
  const auto* ids = e.ids.data<std::int32_t>();
  for (std::int64_t i = 0; !e.tokens.device().is_cuda() && i < e.tokens.size(); ++i)
    require(tokens[i] >= 0 && tokens[i] < vocabulary, what, ": token ", tokens[i], " is not in 0..", vocabulary - 1);
  for (std::int64_t b = 0; width > 0 && !e.ids.device().is_cuda() && b < batch; ++b)
    require(ids[b] >= 0 && ids[b] < e.puzzles.shape()[0], what, ": puzzle ", ids[b], " is not in 0..",
            e.puzzles.shape()[0] - 1);
  return {batch, prefix, cells, d, width, vocabulary, tokens, ids};
}

template <class T>
void forward(const cuda::PuzzleShape& s, T* to, const T* table, const T* puzzles, const T* where, T scale) {
  const std::int64_t length = (s.prefix + s.cells) * s.columns;
  for (std::int64_t b = 0; b < s.batch; ++b, to += length) {
    if (s.width > 0) std::copy_n(puzzles + s.ids[b] * s.width, s.width, to);
    std::fill(to + s.width, to + s.prefix * s.columns, T{0});
    for (std::int64_t c = 0; c < s.cells; ++c)
      std::copy_n(table + s.tokens[b * s.cells + c] * s.columns, s.columns, to + (s.prefix + c) * s.columns);
    for (std::int64_t i = 0; i < length; ++i) to[i] = scale * (where ? to[i] + where[i] : to[i]);
  }
}

template <class T>
void backward(const cuda::PuzzleShape& s, T* dpuzzle, T* dtable, T* dwhere, const T* dx, T scale) {
  const std::int64_t length = (s.prefix + s.cells) * s.columns;
  for (std::int64_t b = 0; b < s.batch; ++b, dx += length) {
    for (std::int64_t i = 0; dpuzzle && i < s.width; ++i) dpuzzle[b * s.width + i] = scale * dx[i];
    for (std::int64_t c = 0; dtable && c < s.cells; ++c) {
      T* to = dtable + s.tokens[b * s.cells + c] * s.columns;
      for (std::int64_t i = 0; i < s.columns; ++i) to[i] += scale * dx[(s.prefix + c) * s.columns + i];
    }
    for (std::int64_t i = 0; dwhere && i < length; ++i) dwhere[i] += scale * dx[i];
  }
}

}  // namespace

void puzzle_embedding_forward(Stream& stream, const Tensor& x, const PuzzleEmbedding& e) {
  const cuda::PuzzleShape s = shape_of("puzzle_embedding", x, e);
  on_gpu(x, [&]<class T>() {
    cuda::puzzle_embedding_forward<T>(stream, s, x, e.table, e.puzzles, e.where, static_cast<real_t<T>>(e.scale));
  });
  on_cpu(x, [&]<class T>() { forward<T>(s, x, e.table, e.puzzles, e.where, static_cast<T>(e.scale)); });
}

void puzzle_embedding_backward(Stream& stream, const Tensor& dpuzzle, const Tensor& dtable, const Tensor& dwhere,
                               const Tensor& dx, const PuzzleEmbedding& e) {
  const cuda::PuzzleShape s = shape_of("puzzle_embedding backward", dx, e);
  require((!dpuzzle || dpuzzle.size() == s.batch * s.width) && (!dtable || dtable.shape() == e.table.shape()) &&
              (!dwhere || dwhere.size() == (s.prefix + s.cells) * s.columns),
          "puzzle_embedding backward: dx is ", dx.shape(), ", the targets are ", dpuzzle.shape(), ", ", dtable.shape(),
          " and ", dwhere.shape(), "; these do not fit together");
  on_gpu(dx, [&]<class T>() {
    using R = real_t<T>;
    cuda::puzzle_embedding_backward<T>(stream, s, dpuzzle, dtable, dwhere, dx, static_cast<R>(e.scale));
  });
  on_cpu(dx, [&]<class T>() { backward<T>(s, dpuzzle, dtable, dwhere, dx, static_cast<T>(e.scale)); });
}

}  // namespace lockstep::ops
