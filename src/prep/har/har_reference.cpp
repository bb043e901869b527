#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/prep/reference.hpp"
#include "lockstep/samples/rasteriser.hpp"

namespace lockstep::prep {

void verify_line_plots(const H5File& golden, ReferenceReport& report) {
  const auto shape = golden.info("/inputs/sequences").shape;
  const auto image = golden.info("/outputs/mask").shape;
  require_data(shape.size() == 2 && shape[1] > 0 && image.size() == 3 && image[0] == shape[0] && image[1] == image[2] &&
                   image[1] > 0,
               "reading '", golden.path().string(), "': sequences (n, L) and masks (n, size, size) expected");
  const std::int64_t n = shape[0], length = shape[1];
  const int size = static_cast<int>(image[1]);
  const auto sequences = golden.read<double>("/inputs/sequences");
  std::vector<std::int64_t> columns;
  for (std::int64_t i = 0; i < length; ++i) columns.push_back(line_plot::x_of(i, length, size));
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint32_t> mask(line_plot::mask_words(size));
  for (std::int64_t plot = 0; plot < n; ++plot) {
    line_plot::draw(sequences.data() + plot * length, length, size, mask.data());
    for (int row = 0; row < size; ++row)
      for (int column = 0; column < size; ++column) pixels.push_back(line_plot::pixel(mask.data(), size, column, row));
  }
  report.compare(golden, "/outputs/mask", pixels, 0);
  report.compare(golden, "/outputs/x_coords", columns, 0);
}

}  // namespace lockstep::prep
