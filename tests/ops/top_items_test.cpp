#include "lockstep/ops/top_items.hpp"

#include "lockstep/ops/gemm.hpp"
#include "ops/every_isa.hpp"
#include "support/devices.hpp"
#include "support/test.hpp"

namespace {
/// Small integers: products are exact, and many scores are equal.
OwnedTensor whole_numbers(DType dtype, std::int64_t rows, std::int64_t columns, const char* site) {
  OwnedTensor t(dtype, {rows, columns});
  const Philox draw(5, 0, site);
  for (std::int64_t i = 0; i < t->size(); ++i) {
    const double value = static_cast<double>(draw.below(5, static_cast<std::uint64_t>(i))) - 2;
    visit_float(dtype, [&]<class T>() { t->data<T>()[i] = static_cast<T>(value); });
  }
  return t;
}

std::vector<std::vector<std::int32_t>> some_excluded(std::int64_t users, std::int64_t items) {
  std::vector<std::vector<std::int32_t>> lists(to_size(users));
  const Philox draw(6, 0, "excluded");
  for (std::int64_t u = 0; u < users; ++u)
    for (std::int64_t i = 0; i < items; ++i)
      if (u % 5 == 4 || draw.uniform(static_cast<std::uint64_t>(u * items + i)) < 0.1 * static_cast<double>(u % 5))
        lists[to_size(u)].push_back(static_cast<std::int32_t>(i));
  return lists;
}

/// The reference: sorts all scores.
std::vector<std::int32_t> reference(const Tensor& users, const Tensor& items,
                                    const std::vector<std::vector<std::int32_t>>& excluded, std::int64_t k) {
  std::vector<std::int32_t> top;
  visit_float(users.dtype(), [&]<class T>() {
    for (std::int64_t u = 0; u < users.rows(); ++u) {
      std::vector<std::pair<double, std::int32_t>> all;
      for (std::int64_t i = 0; i < items.rows(); ++i) {
        double score = 0;
        for (std::int64_t d = 0; d < users.columns(); ++d)
          score += static_cast<double>(users.data<T>()[u * users.columns() + d]) *
                   static_cast<double>(items.data<T>()[i * users.columns() + d]);
        const auto& out = excluded[to_size(u)];
        if (!std::binary_search(out.begin(), out.end(), static_cast<std::int32_t>(i)))
          all.emplace_back(-score, static_cast<std::int32_t>(i));
      }
      std::sort(all.begin(), all.end());
      for (std::int64_t i = 0; i < k; ++i) top.push_back(i < std::ssize(all) ? all[to_size(i)].second : -1);
    }
  });
  return top;
}

std::vector<std::int32_t> run(const Tensor& users, const Tensor& items,
                              const std::vector<std::vector<std::int32_t>>& excluded, std::int64_t k,
                              Device device = {}, const Tensor& typical = {}) {
  Arena arena(device), scratch(device);
  const auto size = to_size(users.rows() * k);
  auto* top = static_cast<std::int32_t*>(arena.host().allocate(size * sizeof(std::int32_t)));
  std::fill_n(top, size, -7);
  Stream stream(device);
  ops::top_items(
      stream, scratch, ops::ItemTable(on_device(items, device), typical), on_device(users, device),
      [&](std::int64_t u) { return std::span<const std::int32_t>(excluded[to_size(u)]); }, k, top);
  stream.synchronize();
  return {top, top + size};
}
}  // namespace

TEST_SUITE("ops.top_items") {
  TEST_CASE("the best items are those of a full sort, equal scores by ascending item, excluded ones never" *
            doctest::test_suite("ops.top_items.cuda")) {
    struct Sizes {
      std::int64_t users, items, columns, k;
    };
    for_every_isa([&] {
      for (const Sizes s : {Sizes{7, 11, 3, 5}, Sizes{70, 1030, 6, 20}, Sizes{3, 513, 1, 100}, Sizes{1, 1, 1, 1},
                            Sizes{5, 0, 2, 3}, Sizes{0, 9, 2, 3}, Sizes{2, 30, 4, 40}})
        for (const DType dtype : {DType::f32, DType::f64}) {
          CAPTURE(s.items);
          CAPTURE(s.k);
          const OwnedTensor users = whole_numbers(dtype, s.users, s.columns, "users"),
                            items = whole_numbers(dtype, s.items, s.columns, "items");
          const auto excluded = some_excluded(s.users, s.items);
          const auto expected = reference(users, items, excluded, s.k);
          for (const Device device : devices()) {
            CAPTURE(name(device));
            CHECK(run(users, items, excluded, s.k, device) == expected);
          }
        }
    });
  }

  TEST_CASE("the best items are kept from one tile to the next" * doctest::test_suite("ops.top_items.cuda")) {
    constexpr std::int64_t kItems = (4 << 20) + 300;  // a GPU computes 2^22 scores at a time
    const OwnedTensor users(DType::f32, {2, 1}), items(DType::f32, {kItems, 1});
    users->data<float>()[0] = 1;
    users->data<float>()[1] = -1;
    std::fill_n(items->data<float>(), kItems, 0.0f);
    constexpr auto kLast = static_cast<std::int32_t>(kItems - 1);
    items->data<float>()[5] = 3;
    for (const std::int32_t i : {7, kLast - 1, kLast}) items->data<float>()[i] = 2;
    for (const std::int32_t i : {8, kLast - 2}) items->data<float>()[i] = -2;
    items->data<float>()[kLast - 200] = 4;
    for (const Device device : devices())
      CHECK(run(users, items, {{0, kLast - 200}, {2, kLast}}, 6, device) ==
            std::vector<std::int32_t>{5, 7, kLast - 1, kLast, 1, 2, 8, kLast - 2, 0, 1, 3, 4});
  }

  TEST_CASE("a user's items do not depend on the other users of the call") {
    const OwnedTensor users = random_tensor(DType::f32, {67, 9}, "users"),
                      items = random_tensor(DType::f32, {700, 9}, "items");
    const auto excluded = some_excluded(67, 700);
    const auto together = run(users, items, excluded, 10);
    for (std::int64_t u = 0; u < 67; ++u) {
      const auto alone = run(users->slice(u, 1), items, {excluded[to_size(u)]}, 10);
      CHECK(std::equal(alone.begin(), alone.end(), together.begin() + u * 10));
    }
  }

  TEST_CASE("candidates contain every item of a full sort of the products") {
    // Kinds of rows: 0 ordinary, 1 nearly equal, 2 equal in pairs, 3 of very different lengths, 4 with outliers,
    // 5 tiny, 6 huge.
    const auto rows = [](DType dtype, std::int64_t count, std::int64_t columns, const char* site, int kind) {
      OwnedTensor t(dtype, {count, columns});
      const Philox draw(7, 0, site);
      visit_float(dtype, [&]<class T>() {
        for (std::int64_t i = 0; i < t->size(); ++i) {
          const std::int64_t row = i / columns, column = i % columns;
          const auto n = static_cast<std::uint64_t>(kind == 2 ? row / 2 * columns + column : i);
          double x = 2 * draw.uniform(n) - 1;
          if (kind == 1) x = 3 + 1e-3 * x;
          if (kind == 3) x *= std::exp(0.02 * static_cast<double>(row % 997));
          if (kind == 4 && i % 61 == 0) x *= 300;
          if (kind == 5) x *= row % 3 == 0 ? 0 : 1e-18;
          if (kind == 6) x *= 1e14;
          t->data<T>()[i] = static_cast<T>(x);
        }
      });
      return t;
    };
    struct Sizes {
      std::int64_t users, items, columns, k;
    };
    for_every_isa([&] {
      for (const Sizes s : {Sizes{3, 3000, 1, 20}, Sizes{5, 1700, 3, 17}, Sizes{100, 2600, 17, 40},
                            Sizes{13, 1030, 50, 600}, Sizes{4, 5000, 176, 100}, Sizes{2, 700, 257, 700}})
        for (const DType dtype : {DType::f32, DType::f64})
          for (int kind = 0; kind < 7; ++kind) {
            CAPTURE(s.columns);
            CAPTURE(kind);
            const OwnedTensor users = rows(dtype, s.users, s.columns, "users", kind),
                              items = rows(dtype, s.items, s.columns, "items", kind),
                              products(dtype, {s.users, s.items});
            Stream stream;
            ops::gemm_nt(stream, {products}, users, items);
            const auto excluded = some_excluded(s.users, s.items);
            std::vector<std::int32_t> expected;
            visit_float(dtype, [&]<class T>() {
              for (std::int64_t u = 0; u < s.users; ++u) {
                const T* score = products->data<T>() + u * s.items;
                std::vector<std::int32_t> all;
                const auto& out = excluded[to_size(u)];
                for (std::int32_t i = 0; i < s.items; ++i)
                  if (!std::binary_search(out.begin(), out.end(), i)) all.push_back(i);
                std::stable_sort(all.begin(), all.end(), [&](auto a, auto b) { return score[a] > score[b]; });
                all.resize(to_size(s.k), -1);
                expected.insert(expected.end(), all.begin(), all.end());
              }
            });
            CHECK(run(users, items, excluded, s.k) == expected);
            CHECK(run(users, items, excluded, s.k, {}, users->slice(0, 1)) == expected);
          }
    });
  }

  TEST_CASE("infinite and huge scores are ranked, and a user without a finite factor gets no item") {
    constexpr float kInf = std::numeric_limits<float>::infinity(), kHuge = 3e38f;
    const OwnedTensor users(DType::f32, {4, 2}), items(DType::f32, {5, 2});
    const float user[] = {1, 0, kHuge, 0, std::numeric_limits<float>::quiet_NaN(), 1, -1, 0};
    std::copy_n(user, 8, users->data<float>());
    for (const bool infinite : {false, true}) {
      const float item[] = {1, 1, infinite ? kInf : kHuge, 1, -2, 1, 3, 1, 3, 1};
      std::copy_n(item, 10, items->data<float>());
      for_every_isa([&] {
        // 3e38 times 1 is 3e38; times 3 or 3e38 it is infinity.
        CHECK(run(users, items, {{}, {3, 3}, {}, {}}, 5) ==
              std::vector<std::int32_t>{1,  3,  4,  0,  2,  1, 4, 0, -1, -1,
                                        -1, -1, -1, -1, -1, 2, 0, 3, 4,  infinite ? -1 : 1});
      });
    }
  }

  TEST_CASE("a NaN score is never chosen" * doctest::test_suite("ops.top_items.cuda")) {
    const OwnedTensor users = whole_numbers(DType::f32, 1, 1, "users"), items(DType::f32, {3, 1});
    users->data<float>()[0] = 1;
    items->data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    items->data<float>()[1] = 1;
    items->data<float>()[2] = 2;
    for (const Device device : devices())
      CHECK(run(users, items, {{}}, 3, device) == std::vector<std::int32_t>{2, 1, -1});
  }

  TEST_CASE("users of another width are an error") {
    const OwnedTensor users(DType::f32, {2, 3}), items(DType::f32, {4, 2});
    std::int32_t top[2] = {};
    Stream stream;
    Arena scratch;
    CHECK_THROWS_WITH_AS(ops::top_items(
                             stream, scratch, ops::ItemTable(items), users,
                             [](std::int64_t) { return std::span<const std::int32_t>(); }, 1, top),
                         "top_items: the items have 2 columns of f32, the users are (2, 3) of f32", Error);
  }
}
