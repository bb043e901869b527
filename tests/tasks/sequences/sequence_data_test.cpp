#include "lockstep/tasks/sequences/sequence_data.hpp"

#include "support/sequence_file.hpp"
#include "support/test.hpp"

namespace {

const std::vector<std::vector<std::int32_t>> kItems = {{3, 1, 4, 1, 5}, {2}, {6, 5}, {2, 4, 6}, {6, 1, 2, 3}};
const std::vector<std::vector<std::int64_t>> kTimes = {{10, 10, 30, 70, 90}, {5}, {5, 6}, {1, 2, 4}, {0, 7, 7, 14}};

std::vector<std::int32_t> list(std::span<const std::int32_t> values) { return {values.begin(), values.end()}; }

/// The message of the error that reading a damaged set throws.
std::string refusal(const std::function<void(prep::SequenceSet&)>& spoil) {
  prep::SequenceSet set = sequence_set(kItems, 6, kTimes);
  spoil(set);
  prep::write_sequence_set("data.h5", set);
  LocalDataMemory data_memory;
  std::string message = error_of(Fault::data, [&] { SequenceData::read("data.h5", data_memory); });
  check_mentions(message, "data.h5");
  return message;
}

}  // namespace

TEST_SUITE("tasks.sequence_data") {
  TEST_CASE("each split has the users with enough items") {
    const SequenceData data = read_set(sequence_set(kItems, 6, kTimes));
    CHECK(data.n_users == 5);
    CHECK(data.n_items == 6);
    CHECK(list(data.trained.span<const std::int32_t>()) == std::vector<std::int32_t>{0, 2, 4});
    CHECK(list(data.evaluated.span<const std::int32_t>()) == std::vector<std::int32_t>{0, 3, 4});
    CHECK(data.size(Split::train) == 3);
    CHECK(data.size(Split::test) == 3);
    CHECK(data.user(Split::validation, 1) == 3);
  }

  TEST_CASE("each split sees the history before its target") {
    const SequenceData data = read_set(sequence_set(kItems, 6, kTimes));
    CHECK(list(data.items(0, Seen::training)) == std::vector<std::int32_t>{3, 1, 4});
    CHECK(list(data.items(0, seen_before(Split::validation))) == std::vector<std::int32_t>{3, 1, 4});
    CHECK(data.target(Split::validation, 0) == 1);
    CHECK(list(data.items(0, seen_before(Split::test))) == std::vector<std::int32_t>{3, 1, 4, 1});
    CHECK(data.target(Split::test, 0) == 5);
    CHECK(list(data.items(0, Seen::everything)) == kItems[0]);
    const auto times = data.times(0, Seen::validation);
    CHECK(std::vector<std::int64_t>(times.begin(), times.end()) == std::vector<std::int64_t>{1, 1, 2, 4});
  }

  TEST_CASE("items are counted: of a user each once, of the training each time") {
    const SequenceData data = read_set(sequence_set(kItems, 6, kTimes));
    CHECK(data.distinct_items(0) == std::vector<std::int32_t>{1, 3, 4, 5});
    CHECK(data.training_counts() == std::vector<std::int64_t>{0, 2, 2, 1, 1, 1, 2});
  }

  TEST_CASE("a set without times has none") {
    const SequenceData data = read_set(sequence_set(kItems, 6));
    CHECK_FALSE(data.has_time());
    CHECK(data.times(0, Seen::validation).empty());
    CHECK(data.hash != read_set(sequence_set(kItems, 6, kTimes)).hash);
  }

  TEST_CASE("users and items have the identifiers of the raw data") {
    prep::write_sequence_set("data.h5", sequence_set(kItems, 6));
    const SequenceNames names = SequenceNames::read(H5File::open("data.h5"));
    CHECK(names.users == std::vector<std::string>{"100", "101", "102", "103", "104"});
    CHECK(names.items.back() == "1005");
  }

  TEST_CASE("an invalid file is an error that says what is wrong") {
    check_mentions(refusal([](auto& set) { set.item[3] = 7; }), "row 3 (user 1) is 7: must be 1..6");
    check_mentions(refusal([](auto& set) { set.item[4] = 0; }), "row 4 (user 1) is 0");
    check_mentions(refusal([](auto& set) { set.time_scaled[3] = 1; }), "the time goes back from 2 to 1");
    check_mentions(refusal([](auto& set) { set.time_scaled[0] = 0; }), "must be at least 1");
    check_mentions(refusal([](auto& set) { set.offsets[2] = 20; }), "falls at row 3");
    check_mentions(refusal([](auto& set) { set.n_train[0] = 4; }), "none or two must be held out");
    check_mentions(refusal([](auto& set) { set.offsets.back() = 14; }), "expected 0 to 15");
    check_mentions(refusal([](auto& set) {
                     set = sequence_set({{1, 2, 3}, {2}}, 3);
                   }),
                   "none of the 2 users has two interactions to train on");
  }
}
