#include "lockstep/tasks/kgat/ranking_task.hpp"

#include <algorithm>

#include "lockstep/base/consecutive.hpp"

namespace lockstep {

namespace {
/// Number of users whose mean row orders the items for a faster search.
constexpr std::int64_t kTypicalUsers = 256;
}  // namespace

RankingTask::RankingTask(KgData data, std::vector<std::int64_t> cutoffs)
    : data_(std::move(data)),
      ranking_(std::move(cutoffs)),
      relevant_{&data_.train, data_.valid.count() > 0 ? &data_.valid : &data_.test, &data_.test} {
  for (std::size_t s = 0; s < relevant_.size(); ++s) {
    for (std::int64_t u = 0; u < data_.users; ++u) {
      if (!relevant_[s]->of(u).empty()) evaluated_[s].push_back(static_cast<std::int32_t>(u));
    }
  }
}

std::span<const std::int32_t> RankingTask::left_out(Arena& arena, Split split, std::int64_t user) const {
  const std::span<const std::int32_t> train = data_.train.of(user), valid = data_.valid.of(user);
  if (split != Split::test || valid.empty()) return train;
  const std::span<std::int32_t> both = arena.array<std::int32_t>(train.size() + valid.size());
  std::ranges::merge(train, valid, both.begin());
  return both;
}

std::string RankingTask::protocol(Split split) const {
  std::int64_t known = 0;
  const std::int64_t untrained = untrained_items();
  Arena arena;
  for (const std::int32_t user : evaluated_[static_cast<std::size_t>(split)]) {
    const std::span<const std::int32_t> out = left_out(arena, split, user);
    for (const std::int32_t item : relevant_[static_cast<std::size_t>(split)]->of(user))
      known += std::ranges::binary_search(out, item);
    arena.reset();
  }
  return join(size(split), " users, full ranking of ", data_.items, " items, training ",
              split == Split::test && data_.valid.count() > 0 ? "and validation " : "", "items left out",
              ranking_.depth() >= data_.items
                  ? join("; lists of K >= ", data_.items, " hold all items, so recall@K says nothing")
                  : "",
              known > 0 ? join("; held-out items among these, which count as missed: ", known) : "",
              untrained > 0 ? join("; items without a training interaction: ", untrained) : "");
}

std::int64_t RankingTask::untrained_items() const {
  std::vector<std::uint8_t> trained(data_.items);
  for (const std::int32_t item : data_.train.item) trained[item] = 1;
  return std::ranges::count(trained, 0);
}

std::int64_t RankingTask::size(Split split) const {
  return split == Split::train ? data_.train.count() : std::ssize(evaluated_[static_cast<std::size_t>(split)]);
}

void RankingTask::begin_evaluation() {
  const OwnedTensor items = item_rows();
  const std::int64_t count = std::min(kTypicalUsers, data_.users);
  if (items->device().is_cuda() || count == 0) {
    items_ = ops::ItemTable(items);
    return;
  }
  std::vector<std::int32_t> some;
  for (std::int64_t i = 0; i < count; ++i)
    some.push_back(static_cast<std::int32_t>(first_user() + i * data_.users / count));
  const OwnedTensor rows(items->dtype(), {count, width()}), typical(items->dtype(), {width()});
  Stream stream;
  user_rows(stream, some, rows);
  visit_float(items->dtype(), [&]<class T>() {
    for (std::int64_t i = 0; i < rows->size(); ++i)
      typical->data<T>()[i % width()] += rows->data<T>()[i] / static_cast<T>(count);
  });
  items_ = ops::ItemTable(items, typical);
}

Tensor RankingTask::rows_of(Tape& tape, std::span<const std::int64_t> users) const {
  const auto count = std::ssize(users);
  const std::span<std::int32_t> list = allocate(tape.host_arena(), DType::i32, {count}).span<std::int32_t>();
  for (std::size_t i = 0; i < users.size(); ++i) list[i] = static_cast<std::int32_t>(first_user() + users[i]);
  const Tensor rows = tape.keep({count, width()}, tape.real_dtype());
  user_rows(tape.stream(), list, rows);
  return rows;
}

void RankingTask::evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const {
  rank(tape, split, first, count, sums, 0);
}

void RankingTask::evaluate_each(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const {
  rank(tape, split, first, count, sums, sum_count());
}

void RankingTask::rank(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums,
                       std::int64_t stride) const {
  const std::span<const std::int32_t> who = users(split, first, count);
  const auto user = [&](std::int64_t i) { return who[i]; };
  const Tensor rows = rows_of(tape, std::vector<std::int64_t>(who.begin(), who.end()));

  const auto known = [&](std::int64_t i) { return left_out(tape.host_arena(), split, user(i)); };
  const std::int64_t depth = ranking_.depth();
  const std::span<std::int32_t> top = allocate(tape.host_arena(), DType::i32, {count * depth}).span<std::int32_t>();
  ops::top_items(tape.stream(), tape.arena(), items_, rows, known, depth, top.data());
  tape.stream().synchronize();
  for (std::int64_t i = 0; i < count; ++i)
    ranking_.add(top.subspan(i * depth, depth), relevant_[static_cast<std::size_t>(split)]->of(user(i)),
                 sums + i * stride);
}

std::vector<Baseline> RankingTask::baselines() const {
  std::vector<std::int64_t> counts(data_.items);
  for (const std::int32_t item : data_.train.item) ++counts[item];
  auto popular = indices_by<std::int32_t>(
      data_.items, [&](std::int32_t item) { return counts[item]; }, std::greater<>());
  const auto evaluate = [this, popular = std::move(popular)](Tape& tape, Split split, std::int64_t first,
                                                             std::int64_t count, double* sums) {
    const auto depth = static_cast<std::size_t>(ranking_.depth());
    std::vector<std::int32_t> top;
    for (const std::int32_t user : users(split, first, count)) {
      top.clear();
      const std::span<const std::int32_t> known = left_out(tape.host_arena(), split, user);
      for (std::size_t i = 0; i < popular.size() && top.size() < depth; ++i)
        if (!std::ranges::binary_search(known, popular[i])) top.push_back(popular[i]);
      ranking_.add(top, relevant_[static_cast<std::size_t>(split)]->of(user), sums);
    }
  };
  return {{"most popular items", evaluate}};
}

}  // namespace lockstep
