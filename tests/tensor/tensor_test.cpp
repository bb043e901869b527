#include "lockstep/tensor/tensor.hpp"

#include "support/test.hpp"

TEST_SUITE("tensor.shape") {
  TEST_CASE("extents, sizes, rows and columns are right from a scalar to the largest number of axes") {
    const Shape scalar, empty{0, 3}, matrix{4, 5}, deep{2, 3, 4, 5, 6, 7};
    CHECK(scalar.rank() == 0);
    CHECK(scalar.size() == 1);
    CHECK(scalar.rows() == 1);
    CHECK(scalar.columns() == 1);
    CHECK(empty.size() == 0);
    CHECK(empty.rows() == 0);
    CHECK(empty.columns() == 3);
    CHECK(matrix[-1] == 5);
    CHECK(matrix[0] == 4);
    CHECK(deep.rows() == 2 * 3 * 4 * 5 * 6);
    CHECK(deep[-6] == 2);
    CHECK(Shape{7}.rows() == 1);
  }

  TEST_CASE("shapes are equal only if their extents are") {
    CHECK(Shape{2, 3} == Shape{2, 3});
    CHECK(Shape{2, 3} != Shape{3, 2});
    CHECK(Shape{2} != Shape{2, 1});
    CHECK(Shape{} != Shape{1});
  }

  TEST_CASE("shapes and dtypes print readably") {
    std::ostringstream out;
    out << Shape{2, 3} << Shape{7} << Shape{} << DType::bf16;
    CHECK(out.str() == "(2, 3)(7)()bf16");
  }

  TEST_CASE("too many axes and negative extents are errors") {
    CHECK_THROWS_WITH_AS((Shape{1, 1, 1, 1, 1, 1, 1}), "a tensor with 7 axes: at most 6 axes are supported", Error);
    CHECK_THROWS_WITH_AS((Shape{2, -1}), "a tensor with extent -1 on axis 1: extents must be >= 0", Error);
  }
}

TEST_SUITE("tensor.tensor") {
  TEST_CASE("a view shares the elements of its tensor") {
    std::vector<float> data = {0, 1, 2, 3, 4, 5};
    const Tensor t = Tensor::of(data.data(), {3, 2});
    CHECK(t.size_bytes() == 24);
    CHECK(t.dtype() == DType::f32);
    t.slice(1, 1).data<float>()[1] = 9;
    CHECK(data[3] == 9);
    CHECK(t.reshaped({2, 3}).slice(1, 1).span<float>()[0] == 9);
    CHECK(t.slice(3, 0).size() == 0);
    CHECK(t.slice(1, 2).shape() == Shape{2, 2});
    CHECK_FALSE(Tensor{});
    CHECK(static_cast<bool>(t));
    const std::vector<double> fixed = {1};
    CHECK(Tensor::of(fixed.data(), {1}).data<double>() == fixed.data());
  }

  TEST_CASE("an impossible slice or shape is an error that names it") {
    std::vector<float> data(6);
    const Tensor t = Tensor::of(data.data(), {3, 2});
    CHECK_THROWS_WITH_AS(t.reshaped({4}), "viewing (3, 2) as (4): the sizes 6 and 4 differ", Error);
    CHECK_THROWS_WITH_AS(t.slice(2, 2), "rows [2, 4) of a tensor of shape (3, 2): out of range", Error);
    CHECK_THROWS_AS(t.slice(-1, 1), Error);
  }

  TEST_CASE("every dtype has its size and its name") {
    const std::array<std::pair<DType, std::pair<std::size_t, const char*>>, 7> all = {{{DType::f32, {4, "f32"}},
                                                                                       {DType::f64, {8, "f64"}},
                                                                                       {DType::bf16, {2, "bf16"}},
                                                                                       {DType::f16, {2, "f16"}},
                                                                                       {DType::i32, {4, "i32"}},
                                                                                       {DType::i64, {8, "i64"}},
                                                                                       {DType::u8, {1, "u8"}}}};
    for (const auto& [dtype, expected] : all) {
      CHECK(size_bytes(dtype) == expected.first);
      CHECK(std::string(name(dtype)) == expected.second);
    }
  }

  TEST_CASE("an owned tensor is zero, aligned, and survives a move") {
    OwnedTensor a(DType::f64, {3, 5});
    for (const double v : a->span<double>()) CHECK(v == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(a->raw()) % 64 == 0);
    a->data<double>()[14] = 2;
    const OwnedTensor b = std::move(a);
    CHECK(b->data<double>()[14] == 2);
    fill_zero(Stream(), b);
    CHECK(b->data<double>()[14] == 0);
    fill_zero(Stream(), OwnedTensor(DType::f64, {0, 4}));
  }

  TEST_CASE("tensors of an arena are disjoint, and visiting selects the right type") {
    Arena arena;
    const Tensor a = allocate(arena, DType::f32, {3}), b = allocate(arena, DType::f64, {2, 2});
    CHECK(a.raw() != b.raw());
    CHECK(visit_float(a.dtype(), []<class T>() { return sizeof(T); }) == 4);
    CHECK(visit_float(b.dtype(), []<class T>() { return sizeof(T); }) == 8);
    CHECK_THROWS_WITH_AS(visit_float(DType::i32, []<class T>() { return sizeof(T); }),
                         "this operation computes in f32 or f64, not in i32", Error);
  }
}
