#include "lockstep/tasks/kgat/ranking_task.hpp"

#include <algorithm>
#include <iterator>

#include "lockstep/data/by_count.hpp"
#include "lockstep/device/kernel_arrays.hpp"

namespace lockstep {

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

std::int64_t RankingTask::size(Split split) const {
  return split == Split::train ? data_.train.count()
                               : static_cast<std::int64_t>(evaluated_[static_cast<std::size_t>(split)].size());
}

void RankingTask::evaluate(Tape& tape, Split split, std::int64_t first, std::int64_t count, double* sums) const {
  const auto on_host = [&](std::int64_t size) {
    return std::span(
        static_cast<std::int32_t*>(tape.host_arena().allocate(static_cast<std::size_t>(size) * sizeof(std::int32_t))),
        static_cast<std::size_t>(size));
  };
  const std::span<const std::int32_t> who = users(split, first, count);
  const auto user = [&](std::int64_t i) { return who[static_cast<std::size_t>(i)]; };
  const std::span<std::int32_t> list = on_host(count);
  for (std::int64_t i = 0; i < count; ++i)
    list[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(first_user() + user(i));
  const Tensor rows = tape.keep({count, width()}, tape.real_dtype());
  user_rows(tape.stream(), list, rows);

  const auto left_out = [&](std::int64_t i) { return data_.train.of(user(i)); };
  const std::int64_t depth = ranking_.depth();
  const std::span<std::int32_t> top = on_host(count * depth);
  ops::top_items(tape.stream(), tape.arena(), items_, rows, left_out, depth, top.data());
  tape.stream().synchronize();
  for (std::int64_t i = 0; i < count; ++i)
    ranking_.add(top.subspan(static_cast<std::size_t>(i * depth), static_cast<std::size_t>(depth)),
                 relevant_[static_cast<std::size_t>(split)]->of(user(i)), sums);
}

std::vector<Baseline> RankingTask::baselines() const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(data_.items));
  for (const std::int32_t item : data_.train.item) ++counts[static_cast<std::size_t>(item)];
  const auto evaluate = [this, popular = by_count(counts)](Tape&, Split split, std::int64_t first, std::int64_t count,
                                                           double* sums) {
    const auto depth = static_cast<std::size_t>(ranking_.depth());
    std::vector<std::int32_t> top;
    for (const std::int32_t user : users(split, first, count)) {
      top.clear();
      for (std::size_t i = 0; i < popular.size() && top.size() < depth; ++i)
        if (!data_.train.has(user, popular[i])) top.push_back(popular[i]);
      ranking_.add(top, relevant_[static_cast<std::size_t>(split)]->of(user), sums);
    }
  };
  return {{"most popular items", evaluate}};
}

std::vector<std::vector<RankedItem>> RankingTask::suggest(std::span<const std::int64_t> users, std::int64_t count) {
  const Device device = params().device();
  const OwnedTensor on_device = item_rows();
  const OwnedTensor of_users(params().dtype(), {static_cast<std::int64_t>(users.size()), width()}, device);
  std::vector<std::int32_t> numbers;
  for (const std::int64_t user : users) numbers.push_back(static_cast<std::int32_t>(first_user() + user));
  const Resident list(std::move(numbers), device);
  Stream gather(device);
  user_rows(gather, list.span(), of_users);
  const HostView items(on_device), rows(of_users);

  std::vector<std::vector<std::int32_t>> known;
  for (const std::int64_t user : users) {
    const auto train = data_.train.of(user), valid = data_.valid.of(user);
    std::vector<std::int32_t>& all = known.emplace_back();
    std::merge(train.begin(), train.end(), valid.begin(), valid.end(), std::back_inserter(all));
  }
  std::vector<std::int32_t> top(users.size() * static_cast<std::size_t>(count));
  Stream stream;
  Arena scratch;
  ops::top_items(
      stream, scratch, ops::ItemTable(items), rows,
      [&](std::int64_t m) { return std::span<const std::int32_t>(known[static_cast<std::size_t>(m)]); }, count,
      top.data());
  std::vector<std::vector<RankedItem>> lists(users.size());
  visit_float(params().dtype(), [&]<class T>() {
    for (std::size_t i = 0; i < top.size(); ++i) {
      if (top[i] < 0) continue;  // fewer than `count` items are left
      const std::size_t m = i / static_cast<std::size_t>(count);
      const T *a = rows->data<const T>() + static_cast<std::int64_t>(m) * width(),
              *b = items->data<const T>() + top[i] * width();
      double score = 0;
      for (std::int64_t c = 0; c < width(); ++c) score += static_cast<double>(a[c]) * static_cast<double>(b[c]);
      lists[m].push_back({top[i], score});
    }
  });
  return lists;
}

}  // namespace lockstep
