#include "lockstep/ops/row_blocks.hpp"

#include "lockstep/device/kernel_arrays.hpp"
#include "support/devices.hpp"
#include "support/test.hpp"

TEST_SUITE("ops.row_blocks.cuda") {
  TEST_CASE("rows are copied between row sets, and the rest is unchanged") {
    const std::vector<std::int32_t> to_rows = {0, 2, 3, 9}, from_rows = {1, 4, 5, 6};
    for (const Device device : devices()) {
      CAPTURE(name(device));
      Stream stream(device);
      const Resident<std::int32_t> to(std::span<const std::int32_t>(to_rows), device),
          from(std::span<const std::int32_t>(from_rows), device);
      for (const DType dtype : {DType::f32, DType::f64}) {
        for (const std::int64_t columns : {0, 1, 33, 40}) {
          CAPTURE(columns);
          const OwnedTensor y = random_tensor(dtype, {11, columns}, "y"), x = random_tensor(dtype, {7, columns}, "x"),
                            y_there = on_device(y, device), x_there = on_device(x, device);
          ops::copy_block(stream, {y_there, ops::RowSet::list(to.span())}, {x_there, ops::RowSet::list(from.span())});
          visit_float(dtype, [&]<class T>() {
            for (std::size_t i = 0; i < to_rows.size(); ++i)
              std::copy_n(x->data<T>() + from_rows[i] * columns, columns, y->data<T>() + to_rows[i] * columns);
          });
          CHECK(same_bits(on_cpu(y_there), y));
        }
      }
    }
  }

  TEST_CASE("halves are copied, row sets may be ranges, and blocks that do not fit are reported") {
    for (const Device device : devices()) {
      Stream stream(device);
      const OwnedTensor x(DType::bf16, {3, 4}), y(DType::bf16, {3, 4});
      for (std::int64_t i = 0; i < 12; ++i) x->data<bf16>()[i].bits = static_cast<std::uint16_t>(100 + i);
      const OwnedTensor there = on_device(x, device), out = on_device(y, device);
      ops::copy_block(stream, {out, ops::RowSet::range(0, 2)}, {there, ops::RowSet::range(1, 2)});
      const OwnedTensor back = on_cpu(out);
      for (std::int64_t i = 0; i < 12; ++i) CHECK(back->data<bf16>()[i].bits == (i < 8 ? 104 + i : 0));
      CHECK_THROWS_WITH_AS(ops::copy_block(stream, {out, ops::RowSet::range(0, 2)}, {there, ops::RowSet::range(0, 3)}),
                           doctest::Contains("3 rows"), Error);
    }
  }
}
