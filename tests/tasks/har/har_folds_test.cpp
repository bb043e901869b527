#include "lockstep/tasks/har/har_folds.hpp"

#include "lockstep/data/data_memory.hpp"
#include "lockstep/prep/har/har_set.hpp"
#include "lockstep/tasks/har/har_data.hpp"
#include "support/test.hpp"

namespace {

struct Windows {
  std::vector<std::int32_t> subject, label;
};

/// 20 subjects, numbered 3, 6, 9, ...; a class of few subjects, and different numbers of windows.
Windows people() {
  Windows w;
  const Philox draws(2, 0, "people");
  for (std::int32_t s = 0; s < 20; ++s)
    for (std::int32_t k = 0; k < (s % 4 == 0 ? 4 : 3); ++k) {
      const auto count = 5 + draws.below(20, static_cast<std::uint64_t>(4 * s + k));
      for (std::uint64_t n = 0; n < count; ++n) w.subject.push_back(3 * s + 3), w.label.push_back(k);
    }
  return w;
}

/// A set of windows of 2 channels, whose values are random; part n % 3.
prep::HarSet set_of(const Windows& w) {
  prep::HarSet set;
  set.length = 4;
  set.class_names = {"a", "b", "c", "d"};
  set.channel_names = {"x", "y"};
  set.sample_rate = 50;
  set.source = "test";
  const Philox draws(3, 0, "values");
  for (std::size_t n = 0; n < w.subject.size(); ++n) {
    std::vector<std::vector<double>> columns(2, std::vector<double>(4));
    for (std::size_t i = 0; i < 8; ++i) columns[i / 4][i % 4] = draws.normal(8 * n + i);
    prep::append_windows(set, columns, 0, 4, 4, {w.label[n], w.subject[n], 0, static_cast<std::uint8_t>(n % 3)});
    set.start.back() = static_cast<std::int64_t>(n);
    set.recording.back() = w.subject[n];
  }
  prep::take_channel_moments(set);
  return set;
}

}  // namespace

TEST_SUITE("tasks.har_folds") {
  TEST_CASE("each subject is in one fold, and each fold has nearly its share of every class") {
    const Windows w = people();
    for (const std::size_t count : {2u, 5u, 20u}) {
      CAPTURE(count);
      const auto folds = stratified_folds(std::to_string(count), w.subject, w.label, "people");
      CHECK(folds.size() == count);
      std::map<std::int32_t, std::size_t> fold_of;
      for (std::size_t f = 0; f < folds.size(); ++f)
        for (const std::int32_t s : folds[f]) CHECK(fold_of.emplace(s, f).second);
      CHECK(fold_of.size() == 20);
      if (count == 20) continue;
      std::map<std::int32_t, std::vector<double>> shares;
      std::map<std::int32_t, double> all;
      for (std::size_t n = 0; n < w.subject.size(); ++n) {
        shares[w.label[n]].resize(count);
        ++shares[w.label[n]][fold_of.at(w.subject[n])];
        ++all[w.label[n]];
      }
      for (const auto& [k, share] : shares)
        for (const double windows : share) {
          CAPTURE(k);
          // Only five subjects have class 3, so five folds get one each.
          const double even = all[k] / static_cast<double>(count);
          CHECK(windows > (k < 3 ? 0.85 * even : 0));
          if (k < 3) CHECK(windows < 1.15 * even);
        }
      CHECK(folds == stratified_folds(std::to_string(count), w.subject, w.label, "people"));
    }
    const auto single = stratified_folds("subjects", w.subject, w.label, "people");
    CHECK(single.size() == 20);
    CHECK(single[1] == std::vector<std::int32_t>{6});
  }

  TEST_CASE("a fold reads like a file whose test part is that fold, with its moments") {
    prep::write_har_set("filed.h5", set_of(people()));
    for (const std::int64_t number : {1, 5}) {
      prep::HarSet set = prep::read_har_set(H5File::open("filed.h5"));
      const auto tested = stratified_folds("5", set.subject, set.labels, "people")[to_size(number - 1)];
      for (std::size_t n = 0; n < set.split.size(); ++n)
        set.split[n] = std::ranges::binary_search(tested, set.subject[n]) ? 2 : 0;
      prep::take_channel_moments(set);
      prep::write_har_set("fold.h5", set);
      LocalDataMemory data_memory;
      const HarData fold = HarData::read("filed.h5", data_memory, HarData::Labels::required, {"5", number}),
                    filed = HarData::read("fold.h5", data_memory);
      CHECK(fold.count == filed.count);
      CHECK(fold.hash == filed.hash);  // of signals, labels and counts
      CHECK(std::ranges::equal(fold.following.span<std::int32_t>(), filed.following.span<std::int32_t>()));
      for (std::size_t c = 0; c < 2; ++c) {
        CHECK(fold.channel_mean[c] == filed.channel_mean[c]);
        CHECK(fold.channel_std[c] == filed.channel_std[c]);
      }
    }
  }

  TEST_CASE("folds that cannot be made are errors that say why") {
    Windows w = people();
    const auto refused = [&](const std::string& how, const std::string& message) {
      CHECK_THROWS_WITH_AS(stratified_folds(how, w.subject, w.label, "people.h5"), doctest::Contains(message.c_str()),
                           Error);
    };
    refused("21", "option data.folds = 21: 'people.h5' has 20 subjects; there must be at least as many as folds");
    prep::write_har_set("filed.h5", set_of(w));
    LocalDataMemory data_memory;
    for (const std::int64_t number : {0, 6})
      CHECK_THROWS_WITH_AS(HarData::read("filed.h5", data_memory, HarData::Labels::required, {"5", number}),
                           doctest::Contains("must be one of the folds 1 .. 5 of data.folds = 5"), Error);
    w.label[4] = -1;
    refused("5", "window 4 has no label");
    w.subject[3] = -1;
    refused("subjects", "making folds of 'people.h5': window 3 has no known subject");
    w = {{7, 7}, {0, 1}};
    refused("subjects", "'people.h5' has 1 subject, but each fold needs one, and there are at least 2 folds");
  }
}
