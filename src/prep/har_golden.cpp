#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/line_plot.hpp"
#include "lockstep/io/h5.hpp"
#include "lockstep/prep/golden_checks.hpp"

namespace lockstep::prep {

std::vector<GoldenRow> check_golden_line_plot(const std::filesystem::path& path) {
  const H5File golden = H5File::open(path);
  const auto shape = golden.info("/inputs/sequences").shape;
  const auto image = golden.info("/outputs/mask").shape;
  require_data(shape.size() == 2 && shape[1] > 0 && image.size() == 3 && image[0] == shape[0] && image[1] == image[2] &&
                   image[1] > 0,
               "reading '", path.string(), "': sequences (n, L) and masks (n, size, size) expected");
  const std::int64_t n = shape[0], length = shape[1];
  const int size = static_cast<int>(image[1]);
  const auto sequences = golden.read<double>("/inputs/sequences");
  const auto theirs = golden.read<std::uint8_t>("/outputs/mask");
  const auto columns = golden.read<std::int64_t>("/outputs/x_coords");

  GoldenRow x{"outputs/x_coords", 0, 0, ""}, pixels{"outputs/mask", 0, 0, ""};
  if (static_cast<std::int64_t>(columns.size()) != length)
    x.note = join(length, " values, the reference has ", columns.size());
  for (std::int64_t i = 0; x.note.empty() && i < length; ++i)
    x.error += columns[static_cast<std::size_t>(i)] != line_plot::x_of(i, length, size);
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(line_plot::mask_words(size)));
  for (std::int64_t plot = 0; plot < n; ++plot) {
    line_plot::draw(sequences.data() + plot * length, length, size, mask.data());
    const std::uint8_t* expected = theirs.data() + plot * size * size;
    for (int row = 0; row < size; ++row) {
      for (int column = 0; column < size; ++column)
        pixels.error += line_plot::pixel(mask.data(), size, column, row) != (expected[row * size + column] != 0);
    }
  }
  return {pixels, x};
}

}  // namespace lockstep::prep
