#include "lockstep/comm/tree_reduce.hpp"

#include "support/test.hpp"

TEST_SUITE("comm.tree_reduce") {
  TEST_CASE("shards of all ranks cover every shard once, in order, in equal shares") {
    for (const std::int64_t shards : {1, 2, 16, 64}) {
      for (int ranks = 1; ranks <= 70; ++ranks) {
        std::int64_t next = 0;
        for (int r = 0; r < ranks; ++r) {
          const ShardRange mine = shards_of(shards, r, ranks);
          CHECK(mine.begin == next);
          CHECK(mine.count() >= shards / ranks);
          CHECK(mine.count() <= (shards + ranks - 1) / ranks);
          next = mine.end;
        }
        CHECK(next == shards);
      }
    }
    CHECK_THROWS_AS(shards_of(16, 2, 2), Error);
    CHECK_THROWS_AS(shards_of(0, 0, 1), Error);
  }

  TEST_CASE("aligned subtrees cover a range with the smallest number") {
    CHECK(aligned_subtrees({0, 16}) == std::vector<ShardRange>{{0, 16}});
    CHECK(aligned_subtrees({3, 8}) == std::vector<ShardRange>{{3, 4}, {4, 8}});
    CHECK(aligned_subtrees({5, 11}) == std::vector<ShardRange>{{5, 6}, {6, 8}, {8, 10}, {10, 11}});
    CHECK(aligned_subtrees({4, 4}).empty());
    for (std::int64_t begin = 0; begin <= 32; ++begin) {
      for (std::int64_t end = begin; end <= 32; ++end) {
        std::int64_t next = begin;
        for (const ShardRange tree : aligned_subtrees({begin, end})) {
          CHECK(tree.begin == next);
          CHECK((tree.count() & (tree.count() - 1)) == 0);
          CHECK(tree.begin % tree.count() == 0);
          next = tree.end;
        }
        CHECK(next == end);
      }
    }
  }

  TEST_CASE("tree_sum adds in pairs, may overwrite one of its vectors, and keeps elements outside its range") {
    const std::size_t n = 2500;
    std::vector<std::vector<float>> parts(8, std::vector<float>(n));
    for (std::size_t p = 0; p < parts.size(); ++p)
      for (std::size_t i = 0; i < n; ++i)
        parts[p][i] = std::sin(static_cast<float>(p * n + i)) * std::pow(10.0f, p % 5);
    std::vector<float> wanted(n);
    for (std::size_t i = 0; i < n; ++i)
      wanted[i] = ((parts[0][i] + parts[1][i]) + (parts[2][i] + parts[3][i])) +
                  ((parts[4][i] + parts[5][i]) + (parts[6][i] + parts[7][i]));
    const std::vector<std::span<const float>> views(parts.begin(), parts.end());
    std::vector<float> sum(n, 7.0f);
    tree_sum<float>(views, 10, 2400, std::span<float>(sum));
    CHECK(sum[9] == 7.0f);
    CHECK(sum[2400] == 7.0f);
    CHECK(std::memcmp(sum.data() + 10, wanted.data() + 10, 2390 * sizeof(float)) == 0);
    tree_sum<float>(views, 0, static_cast<std::int64_t>(n), std::span<float>(parts[5]));
    CHECK(std::memcmp(parts[5].data(), wanted.data(), n * sizeof(float)) == 0);
  }

  TEST_CASE("sparse_tree_sum has the bits of tree_sum with zeros for the missing vectors, and no -0") {
    constexpr std::size_t kLength = 37;
    for (const std::int64_t count : {1, 2, 8, 16}) {
      for (std::uint64_t given = 1; given < (std::uint64_t{1} << count); given += count < 16 ? 1 : 257) {
        std::vector<std::vector<float>> parts(to_size(count), std::vector<float>(kLength, 0.0f));
        std::vector<TreeLeaf<float>> leaves;
        for (std::size_t p = 0; p < parts.size(); ++p) {
          if (((given >> p) & 1) == 0) continue;
          for (std::size_t i = 0; i < kLength; ++i)
            parts[p][i] = i % 5 == 0 ? -0.0f : std::sin(static_cast<float>(p * kLength + i)) * std::pow(10.0f, p % 5);
          leaves.push_back({{static_cast<std::int64_t>(p), static_cast<std::int64_t>(p) + 1}, parts[p].data()});
        }
        std::vector<float> wanted(kLength), sum(kLength, 7.0f);
        const std::vector<std::span<const float>> views(parts.begin(), parts.end());
        tree_sum<float>(views, 0, kLength, std::span<float>(wanted));
        for (float& value : wanted) value += 0.0f;
        sparse_tree_sum<float>(leaves, {0, count}, std::span<float>(sum));
        CHECK(std::memcmp(sum.data(), wanted.data(), kLength * sizeof(float)) == 0);
      }
    }
  }

  TEST_CASE("partial_sums counts the sums of a thread that adds siblings as soon as both are there") {
    for (std::int64_t begin = 0; begin < 20; ++begin) {
      std::size_t most = 0;
      for (std::int64_t end = begin + 1; end < 40; ++end) {
        most = std::max(most, aligned_subtrees({begin, end - 1}).size() + 1);
        CHECK(partial_sums({begin, end}) == static_cast<std::int64_t>(most));
      }
    }
  }

  TEST_CASE("tree_sum rejects vectors that do not form a tree") {
    const std::vector<float> a(4), b(5);
    std::vector<float> sum(4);
    const std::vector<std::span<const float>> three(3, std::span<const float>(a));
    CHECK_THROWS_AS(tree_sum<float>(three, 0, 4, std::span<float>(sum)), Error);
    const std::vector<std::span<const float>> uneven = {a, b};
    CHECK_THROWS_AS(tree_sum<float>(uneven, 0, 4, std::span<float>(sum)), Error);
  }
}
