#include "lockstep/ops/line_patches.hpp"

#include "lockstep/samples/rasteriser.hpp"
#include "ops/every_isa.hpp"
#include "support/test.hpp"

namespace {

/// Pictures with scattered pixels of three colours. One patch of each has only the third colour.
struct Pictures {
  explicit Pictures(std::int64_t count, int size) : size(size), colours(to_size(9 * count)) {
    const std::int64_t words = line_plot::mask_words(size);
    line.assign(to_size(count * words), 0u);
    outside = line;
    const Philox draws(5, 0, "pictures");
    for (std::int64_t n = 0; n < count; ++n)
      for (int y = 0; y < size; ++y)
        for (int x = 0; x < size; ++x) {
          const double u = draws.uniform(static_cast<std::uint64_t>((n * size + y) * size + x));
          const auto word = to_size(n * words + y * line_plot::words_per_row(size) + x / 32);
          if (x < 5 && y < 5)
            outside[word] |= 1u << (x % 32);
          else if (u < 0.1)
            line[word] |= 1u << (x % 32);
          else if (u < 0.2)
            outside[word] |= 1u << (x % 32);
        }
    for (std::size_t i = 0; i < colours.size(); ++i) colours[i] = draws.normal(1000000 + i);
  }
  ops::LinePictures view() const {
    return {.count = static_cast<std::int64_t>(colours.size() / 9),
            .size = size,
            .line = line.data(),
            .outside = outside.data(),
            .colours = colours.data()};
  }
  double value(std::int64_t n, int c, int x, int y) const {
    const std::int64_t words = line_plot::mask_words(size);
    const int k = line_plot::pixel(line.data() + n * words, size, x, y)      ? 1
                  : line_plot::pixel(outside.data() + n * words, size, x, y) ? 2
                                                                             : 0;
    return colours[to_size(9 * n + 3 * k + c)];
  }
  int size;
  std::vector<std::uint32_t> line, outside;
  std::vector<double> colours;
};

/// Calls f(n, t, c, i, j, value) for every value of every patch.
template <class F>
void for_each_value(const Pictures& p, std::int64_t patch, const F& f) {
  const std::int64_t side = p.size / patch;
  for (std::int64_t n = 0; n < p.view().count; ++n)
    for (std::int64_t t = 0; t < side * side; ++t)
      for (int c = 0; c < 3; ++c)
        for (std::int64_t i = 0; i < patch; ++i)
          for (std::int64_t j = 0; j < patch; ++j)
            f(n, t, c, i, j,
              p.value(n, c, static_cast<int>(t % side * patch + j), static_cast<int>(t / side * patch + i)));
}

}  // namespace

TEST_SUITE("ops.line_patches") {
  TEST_CASE("the embedding and its gradients are those of a convolution, with pixels left over at the edges") {
    for_every_isa([&] {
      for (const std::int64_t width : {1, 20, 67})
        for (const DType type : {DType::f32, DType::f64}) {
          const std::int64_t patch = 5, tokens = 16;
          const Pictures pictures(3, 23);
          const Shape shape{width, 3, patch, patch};
          const OwnedTensor w = random_tensor(type, shape, "w"), b = random_tensor(type, {width}, "b"),
                            dy = random_tensor(type, {3, tokens, width}, "dy");
          const OwnedTensor y(type, {3, tokens, width}), dw(type, shape), db(type, {width});
          Stream stream;
          ops::line_patches_forward(stream, y, pictures.view(), w, b);
          ops::line_patches_backward(stream, {dw, true}, {db, true}, dy, pictures.view());
          const OwnedTensor w64 = converted(w, DType::f64), b64 = converted(b, DType::f64),
                            dy64 = converted(dy, DType::f64), y64(DType::f64, y->shape()), dw64(DType::f64, shape),
                            db64(DType::f64, {width});
          for (std::int64_t r = 0; r < 3 * tokens; ++r)
            for (std::int64_t d = 0; d < width; ++d) {
              y64->data<double>()[r * width + d] = b64->data<double>()[d];
              db64->data<double>()[d] += dy64->data<double>()[r * width + d];
            }
          for_each_value(pictures, patch, [&](auto n, auto t, int c, auto i, auto j, double x) {
            for (std::int64_t d = 0; d < width; ++d) {
              const std::int64_t at = ((d * 3 + c) * patch + i) * patch + j, row = (n * tokens + t) * width + d;
              y64->data<double>()[row] += w64->data<double>()[at] * x;
              dw64->data<double>()[at] += dy64->data<double>()[row] * x;
            }
          });
          const double tolerance = type == DType::f32 ? 5e-6 : 1e-13;
          CHECK(difference(y, y64) < tolerance);
          CHECK(difference(dw, dw64) < tolerance);
          CHECK(difference(db, db64) < tolerance);
        }
    });
  }

  TEST_CASE("a picture has the same bits alone and among others") {
    const Pictures pictures(3, 32);
    const OwnedTensor w = random_tensor(DType::f32, {24, 3, 8, 8}, "w"), b = random_tensor(DType::f32, {24}, "b");
    const OwnedTensor all(DType::f32, {3, 16, 24}), one(DType::f32, {1, 16, 24});
    Stream stream;
    ops::line_patches_forward(stream, all, pictures.view(), w, b);
    ops::LinePictures last = pictures.view();
    last.count = 1;
    last.line += 2 * 32;
    last.outside += 2 * 32;
    last.colours += 18;
    ops::line_patches_forward(stream, one, last, w, b);
    CHECK(same_bits(one, all->slice(2, 1)));
  }

  TEST_CASE("shapes that do not fit are reported") {
    const Pictures pictures(1, 16);
    const OwnedTensor w(DType::f32, {4, 3, 8, 8}), b(DType::f32, {4}), y(DType::f32, {1, 5, 4});
    Stream stream;
    CHECK_THROWS_WITH_AS(ops::line_patches_forward(stream, y, pictures.view(), w, b),
                         "line patches: weight is (4, 3, 8, 8) and there are 1 pictures of 16 pixels, so y must be (1, "
                         "4, 4), not (1, 5, 4)",
                         Error);
  }
}
