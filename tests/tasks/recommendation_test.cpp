#include "tasks/recommendation.hpp"

#include "lockstep/base/consecutive.hpp"
#include "support/test.hpp"

namespace {

constexpr std::int64_t kUsers = 150, kItems = 300, kWidth = 6;

/// Users and items of random rows. User u has the items u, u + 1 and u + 2; user 3 has all but item 7.
struct Toy {
  std::vector<float> state = std::vector<float>(to_size(kUsers * kWidth));
  Recommender model;
  Toy() {
    model.users = IdTable::numbers(kUsers);
    model.item_ids = IdTable::numbers(kItems);
    model.items = OwnedTensor(DType::f32, {kItems, kWidth});
    const Philox draws(1, 0, "rows", 0);
    for (std::size_t i = 0; i < state.size(); ++i) state[i] = static_cast<float>(draws.uniform(i) - 0.5);
    for (std::int64_t i = 0; i < kItems * kWidth; ++i)
      model.items->data<float>()[i] = static_cast<float>(draws.uniform(static_cast<std::uint64_t>(i) + 5000) - 0.5);
    model.states = [this](Tape& tape, std::span<const std::int64_t> users) {
      const Tensor to = tape.keep({std::ssize(users), kWidth});
      for (std::size_t u = 0; u < users.size(); ++u)
        std::copy_n(state.data() + users[u] * kWidth, kWidth, to.data<float>() + static_cast<std::int64_t>(u) * kWidth);
      return to;
    };
    model.left_out = [](std::int64_t user, std::vector<std::int32_t>& items) {
      for (std::int32_t i = 0; i < kItems; ++i)
        if (user == 3 ? i != 7 : i >= user && i < user + 3) items.push_back(i);
    };
  }
  double score(std::int64_t user, std::int64_t item) const {
    double sum = 0;
    for (std::int64_t k = 0; k < kWidth; ++k)
      sum += static_cast<double>(state[to_size(user * kWidth + k)]) *
             static_cast<double>(model.items->data<float>()[item * kWidth + k]);
    return sum;
  }
};

}  // namespace

TEST_SUITE("tasks.recommendation") {
  TEST_CASE("a list holds the best items outside what is left out, best first, on any number of threads") {
    const Toy toy;
    const std::vector<std::int64_t> users = consecutive<std::int64_t>(toy.model.users.size());
    const RankedItems ranked = rank_items(toy.model, users, 10, {}, 1);
    for (const std::int64_t user : users) {
      std::vector<std::int32_t> out, wanted;
      toy.model.left_out(user, out);
      for (std::int32_t i = 0; i < kItems; ++i)
        if (!std::binary_search(out.begin(), out.end(), i)) wanted.push_back(i);
      std::sort(wanted.begin(), wanted.end(),
                [&](std::int32_t a, std::int32_t b) { return toy.score(user, a) > toy.score(user, b); });
      for (std::size_t i = 0; i < 10; ++i) {
        const std::size_t at = to_size(user) * 10 + i;
        if (i >= wanted.size()) {
          CHECK(ranked.items[at] == -1);
          CHECK(std::isnan(ranked.scores[at]));
          continue;
        }
        CHECK(ranked.items[at] == wanted[i]);
        CHECK(ranked.scores[at] == Approx(toy.score(user, wanted[i])).epsilon(1e-6));
      }
    }
    const RankedItems again = rank_items(toy.model, users, 10, {}, 3);
    CHECK(again.items == ranked.items);
    CHECK(std::equal(again.scores.begin(), again.scores.end(), ranked.scores.begin(),
                     [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }));
  }

  TEST_CASE("candidates keep their order, have the scores of the lists, and are not left out") {
    const Toy toy;
    const std::vector<std::int64_t> users = {4, 120};
    const RankedItems best = rank_items(toy.model, users, 1, {}, 2);
    const std::vector<std::int32_t> candidates = {5, best.items[0], 299};  // user 4 has item 5
    const RankedItems ranked = rank_items(toy.model, users, 3, candidates, 2);
    CHECK(ranked.items == std::vector<std::int32_t>{5, best.items[0], 299, 5, best.items[0], 299});
    CHECK(ranked.scores[1] == best.scores[0]);
    CHECK(ranked.scores[3] == Approx(toy.score(120, 5)).epsilon(1e-6));
  }

  TEST_CASE("ids and unique names are found; unknown and repeated ones are listed with their lines") {
    const IdTable table({"a", "b", "c", "a b"}, {"Film", "Film", "Other", ""});
    CHECK(table.find("b") == 1);
    CHECK(table.find("Other") == 2);
    CHECK(table.find("Film") == IdTable::kSeveral);
    CHECK(table.find("") == -1);
    CHECK(table.called(2) == "Other (c)");
    CHECK(table.called(3) == "a b");
    CHECK(IdTable({"1", "2"}, {"Caf\xE9", "Caf\xC3\xA9s"}).find("Caf\xC3\xA9") == 0);  // ISO 8859-1 becomes UTF-8
    CHECK_FALSE(table.integers());
    CHECK(IdTable({"7", "-1"}).integers());
    CHECK_FALSE(IdTable({"07"}).integers());

    write_text("ids.txt",
               "\xEF\xBB\xBF"
               "c\n\n  a b \r\nx\n");
    const std::vector<WrittenId> ids = read_ids("ids.txt");
    REQUIRE(ids.size() == 3);
    CHECK(ids[0].text == "c");
    CHECK(ids[1].text == "a b");
    CHECK(error_of(Fault::data, [&] { find_ids(ids, table, "reading", "the users"); }) ==
          "reading: 'x' (line 4) is none of the users");
    CHECK(find_ids({ids[0], ids[1]}, table, "", "") == std::vector<std::int64_t>{2, 3});
    CHECK(error_of(Fault::usage, [&] {
            find_ids({{"a"}, {"c"}, {"a"}}, table, "option user", "");
          }) == "option user: 'a' occurs twice");
    CHECK(error_of(Fault::usage, [&] {
            find_ids({{"Other"}, {"Film"}}, table, "option candidates", "the items");
          }) == "option candidates: 'Film' is a name of several; give the id instead");
    std::vector<WrittenId> many;
    for (std::int64_t i = 1; i <= 12; ++i) many.push_back({"u" + std::to_string(i), i});
    CHECK(contains(error_of(Fault::data, [&] { find_ids(many, table, "reading", "the users"); }),
                   "'u10' (line 10) and 2 more are none"));
    write_text("empty.txt", "\n \n");
    CHECK(contains(error_of(Fault::data, [&] { read_ids("empty.txt"); }), "it is empty"));
  }
}
