#include "lockstep/ops/line_patches.hpp"

#include "lockstep/samples/rasteriser.hpp"
#include "support/op_row.hpp"
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
          const bool corner = x < 5 && y < 5;
          if (!corner && u < 0.1)
            line[word] |= 1u << (x % 32);
          else if (corner || u < 0.2)
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

}  // namespace

TEST_SUITE("ops.line_patches") {
  TEST_CASE("definition, gradients, bits and devices: a convolution, with pixels left over at the edges") {
    for (const bool turned : {true, false}) {
      const auto pictures = [&](Int count, Int size) {
        Pictures all(count, static_cast<int>(size));
        if (!turned) std::ranges::fill(all.outside, 0u);
        if (!turned && count > 0) all.colours[3] = all.colours[0];  // one component of the line is that of the paper
        return all;
      };
      const auto run = [&](Place& p, Int count, Int size, Int patch, Int width) {
        const Pictures drawn = pictures(count, size);
        ops::LinePictures view = drawn.view();
        view.line = p.host(drawn.line).data();
        view.outside = turned ? p.host(drawn.outside).data() : nullptr;
        view.colours = p.host(drawn.colours).data();
        const Shape weight{width, 3, patch, patch}, y{count, (size / patch) * (size / patch), width};
        const Tensor w = p.weight("w", weight), b = p.weight("b", {width});
        ops::line_patches_forward(p.stream, p.out("y", y), view, w, b);
        ops::line_patches_backward(p.stream, {p.added(p.sum("dw", weight)), true},
                                   {p.added(p.sum("db", {width})), true}, p.in("dy", y), view);
      };
      const auto definition = [&](Plain& r, Int count, Int size, Int patch, Int width) {
        const Pictures drawn = pictures(count, size);
        const auto w = r.in("w"), b = r.in("b"), y = r.out("y");
        const Int side = size / patch;
        for (Int n = 0; n < count; ++n)
          for (Int t = 0; t < side * side; ++t)
            for (Int d = 0; d < width; ++d) {
              double& sum = y(n, t, d) = b(d);
              for (int c = 0; c < 3; ++c)
                for (Int i = 0; i < patch; ++i)
                  for (Int j = 0; j < patch; ++j)
                    sum += w(d, c, i, j) * drawn.value(n, c, static_cast<int>(t % side * patch + j),
                                                       static_cast<int>(t / side * patch + i));
            }
      };
      CHECK(faults(run, definition, {{3, 23, 5, 20}, {1, 16, 8, 67}, {2, 32, 2, 3}, {0, 16, 8, 4}},
                   {.f32 = 5e-6,
                    .f64 = 1e-13,
                    .rows = false,
                    .refused = {{{1, 16, 8, 4},
                                 "y",
                                 {1, 5, 4},
                                 "line patches: weight is (4, 3, 8, 8) and there are 1 pictures of 16 pixels, so y "
                                 "must be (1, 4, 4), not (1, 5, 4)"}},
                    .cpu_sizes = {{3, 23, 5, 1}},
                    .gpu_sizes = {{1, 20, 7, 70}, {2, 40, 20, 3}, {1, 16, 8, 300}}}) == "");
    }
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
}
