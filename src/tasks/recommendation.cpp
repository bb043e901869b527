#include "tasks/recommendation.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <limits>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/ops/row_scores.hpp"
#include "lockstep/ops/top_items.hpp"
#include "lockstep/train/trainer.hpp"
#include "tasks/parallel_blocks.hpp"

namespace lockstep {
namespace {

/// Users of one forward pass. Twice as many made SASRec with 200 slots a quarter slower (activations leave the cache);
/// fewer read a large table of items more often.
constexpr std::int64_t kUserBlock = 32;

/// Sorts items by score, best first; equal scores by item.
void sort_by_score(std::span<std::int32_t> items, std::span<double> scores) {
  auto order = consecutive<std::size_t>(std::ssize(items));
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : items[a] < items[b];
  });
  const std::vector<std::int32_t> old_items(items.begin(), items.end());
  const std::vector<double> old_scores(scores.begin(), scores.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    items[i] = old_items[order[i]];
    scores[i] = old_scores[order[i]];
  }
}

PredictionColumn id_column(const std::string& name, const IdTable& ids, std::vector<std::int64_t> extents) {
  return {.name = name,
          .type = ids.integers() ? H5Type::i64 : H5Type::text,
          .extents = std::move(extents),
          .longest = ids.longest_id()};
}

/// Stores the id of a number; for -1, an empty text or -1.
void put_id(PredictionValues& values, std::size_t at, const IdTable& ids, std::int64_t number) {
  if (auto* texts = std::get_if<Texts>(&values))
    (*texts)[at] = number < 0 ? "" : ids.id(number);
  else
    std::get<Integers>(values)[at] = number < 0 ? -1 : std::stoll(ids.id(number));
}

/// Rows that a rank computes at a time: whole blocks of users, enough for all ranks to have some, and not more than
/// about 8 million values.
std::int64_t block_rows(std::int64_t rows, std::int64_t width, std::int64_t ranks) {
  constexpr std::int64_t kMostValues = std::int64_t{1} << 23, kMostBlocks = 64;
  const std::int64_t share = (rows + ranks * kUserBlock - 1) / (ranks * kUserBlock);
  return std::clamp(std::min(share, kMostValues / width / kUserBlock), std::int64_t{1}, kMostBlocks) * kUserBlock;
}

H5Type stored_type(DType dtype) { return dtype == DType::f64 ? H5Type::f64 : H5Type::f32; }

PredictionTable lists_table(const Recommender& model, std::int64_t count, const std::vector<std::int32_t>& candidates,
                            int threads) {
  const DType dtype = model.items->dtype();
  PredictionTable table;
  table.columns = {id_column("user", model.users, {}),
                   id_column("item", model.item_ids, {count}),
                   {.name = "score", .type = stored_type(dtype), .extents = {count}}};
  if (model.item_ids.has_names())
    table.columns.push_back(
        {.name = "name", .type = H5Type::text, .extents = {count}, .longest = model.item_ids.longest_name()});
  table.rows = std::ssize(model.chosen);
  table.block = [&model, &candidates, count, dtype, threads](std::int64_t first, std::int64_t rows,
                                                             std::vector<PredictionValues>& values) {
    const std::span<const std::int64_t> users = std::span(model.chosen).subspan(first, rows);
    const RankedItems ranked = rank_items(model, users, count, candidates, threads);
    for (std::size_t u = 0; u < users.size(); ++u) put_id(values[0], u, model.users, users[u]);
    for (std::size_t i = 0; i < ranked.items.size(); ++i) {
      put_id(values[1], i, model.item_ids, ranked.items[i]);
      if (values.size() > 3 && ranked.items[i] >= 0)
        std::get<Texts>(values[3])[i] = model.item_ids.name(ranked.items[i]);
    }
    visit_float(dtype, [&]<class T>() {
      std::copy(ranked.scores.begin(), ranked.scores.end(), std::get<std::vector<T>>(values[2]).begin());
    });
  };
  return table;
}

PredictionTable embeddings_table(const Recommender& model, bool of_users, int threads) {
  const DType dtype = model.items->dtype();
  const std::int64_t width = model.items->columns();
  PredictionTable table;
  table.columns = {of_users ? id_column("user", model.users, {}) : id_column("item", model.item_ids, {}),
                   {.name = "embedding", .type = stored_type(dtype), .extents = {width}}};
  table.rows = of_users ? std::ssize(model.chosen) : model.item_ids.size();
  table.block = [&model, of_users, dtype, width, threads](std::int64_t first, std::int64_t rows,
                                                          std::vector<PredictionValues>& values) {
    visit_float(dtype, [&]<class T>() {
      T* to = std::get<std::vector<T>>(values[1]).data();
      if (!of_users) {
        std::copy_n(model.items->data<T>() + first * width, rows * width, to);
        for (std::int64_t i = 0; i < rows; ++i)
          put_id(values[0], static_cast<std::size_t>(i), model.item_ids, first + i);
        return;
      }
      const std::span<const std::int64_t> users = std::span(model.chosen).subspan(first, rows);
      parallel_blocks(Device{}, dtype, threads, rows, kUserBlock,
                      [&](Tape& tape, std::int64_t begin, std::int64_t count) {
                        const Tensor states = model.states(tape, users.subspan(begin, count));
                        std::copy_n(states.data<T>(), states.size(), to + begin * width);
                      });
      for (std::size_t u = 0; u < users.size(); ++u) put_id(values[0], u, model.users, users[u]);
    });
  };
  return table;
}

void print(const Recommender& model, const RankedItems& ranked) {
  const std::size_t users = model.chosen.size(), count = ranked.items.size() / std::max<std::size_t>(users, 1);
  for (std::size_t u = 0; u < users; ++u) {
    std::cout << "user " << model.users.called(model.chosen[u]) << "\n";
    if (model.recent)
      for (const std::int32_t item : model.recent(model.chosen[u]))
        std::cout << "  had          " << model.item_ids.called(item) << "\n";
    for (std::size_t i = u * count; i < (u + 1) * count && ranked.items[i] >= 0; ++i)
      std::cout << "  " << std::setw(3) << i - u * count + 1 << std::setw(8) << std::fixed << std::setprecision(3)
                << ranked.scores[i] << "  " << model.item_ids.called(ranked.items[i]) << "\n";
  }
}

std::vector<WrittenId> written(const std::vector<std::string>& texts, const std::string& path) {
  if (!path.empty()) return read_ids(path);
  std::vector<WrittenId> ids;
  for (const std::string& text : texts) ids.push_back({text, 0});
  return ids;
}

/// The ids of a table. file: the option that also takes ids with commas
std::string described(const IdTable& table, const std::string& what, const std::string& data_path,
                      const std::string& file) {
  bool commas = false;
  for (std::int64_t i = 0; i < table.size() && !commas; ++i) commas = table.id(i).find(',') != std::string::npos;
  return table.described(what, data_path) + (commas ? "; " + file + " FILE takes ids that contain a comma" : "");
}

std::string where(const std::string& option, const std::string& path) {
  return path.empty() ? "option " + option : join("reading '", path, "'");
}

}  // namespace

int RecommendationOptions::excluded_splits() const {
  return exclude == "none" ? 0 : exclude == "train" ? 1 : exclude == "train+val" ? 2 : 3;
}

std::string RecommendationOptions::left_out_text() const {
  const char* texts[] = {"nothing", "the user's items of train", "the user's items of train and val",
                         "the user's items of train, val and test"};
  return texts[excluded_splits()];
}

void add_recommendation_options(Options& options, RecommendationOptions& o) {
  options.add("checkpoint=FILE", &o.checkpoint, "", "checkpoint with the weights").required();
  options.add("user=ID,...", &o.users, {}, "users, by their ids in the raw data");
  options.add("users-file=FILE", &o.users_file, "", "file with the ids of users, one per line");
  options.add("all-users", &o.all_users, false, "all users of the data set");
  options.add("top", &o.top, 10, at_least(1),
              "items per user, best first; the default is all items if there are fewer");
  options.add("candidates=ID,...", &o.candidates, {},
              "items, by id or name: their scores for each user, in this order, instead of the best items");
  options.add("candidates-file=FILE", &o.candidates_file, "", "the same from a file, one item per line");
  options.choice("embeddings", &o.embeddings, "none", {"none", "users", "items"},
                 "write the states of the users, or the rows of all items, whose inner products are the scores");
  options
      .choice("exclude", &o.exclude, "all", {"all", "train+val", "train", "none"},
              "splits whose items are excluded from a user's best items")
      .value_alias("train+valid", "train+val");
  add_output_options(options, o.output, "the lists, scores or embeddings; without it they are printed");
  options.add(
      "other-data", &o.other_data, false,
      "accept a data set other than that of the training; its users and items must be numbered in the same way");
  options.list_only(
      {"model.kind", "data.*", "run.threads", "run.isa", "run.precision", "dist.timeout", "dist.check_collectives"});
}

void check(const RecommendationOptions& o, const Options& options, World& world,
           const std::pair<std::string, std::string>& source, std::vector<std::string> inputs) {
  const auto both = [&](const std::string& a, bool has_a, const std::string& b, bool has_b) {
    require_usage(!has_a || !has_b, "options ", a, " and ", b, ": both are set; omit one");
  };
  const int sources = !o.users.empty() + !o.users_file.empty() + o.all_users + !source.second.empty();
  const std::string names = "user, users-file" + (source.first.empty() ? "" : ", " + source.first) + " and all-users";
  require_usage(sources == (o.of_users() ? 1 : 0), "options ", names, ": ", sources, " of them are set; ",
                o.of_users() ? "set exactly one" : "the table of all items needs none");
  both("candidates", !o.candidates.empty(), "candidates-file", !o.candidates_file.empty());
  const bool candidates = !o.candidates.empty() || !o.candidates_file.empty();
  both("top", options.given("top"), "candidates", candidates);
  both("exclude", options.given("exclude"), "candidates", candidates);
  for (const char* other : {"top", "exclude"}) both("embeddings", o.embeddings != "none", other, options.given(other));
  both("embeddings", o.embeddings != "none", "candidates", candidates);
  require_usage(!o.output.path.empty() || (o.embeddings == "none" && !o.all_users),
                "option output: ", o.all_users ? "the lists of all users" : "embeddings",
                " are written to a file; add --output FILE");
  inputs.insert(inputs.end(), {o.checkpoint, o.users_file, o.candidates_file});
  if (!o.output.path.empty() && world.rank() == 0) require_output(o.output, inputs);
}

std::vector<std::int64_t> select_users(const RecommendationOptions& o, const IdTable& users,
                                       const std::string& data_path) {
  if (!o.all_users)
    return find_ids(written(o.users, o.users_file), users, where("user", o.users_file),
                    described(users, "users", data_path, "--users-file"));
  return consecutive<std::int64_t>(users.size());
}

RankedItems rank_items(const Recommender& model, std::span<const std::int64_t> users, std::int64_t count,
                       std::span<const std::int32_t> candidates, int threads) {
  const auto size = std::ssize(users);
  RankedItems ranked{std::vector<std::int32_t>(size * count), std::vector<double>(size * count)};
  const ops::ItemTable table = candidates.empty() ? ops::ItemTable(model.items) : ops::ItemTable();
  const DType dtype = model.items->dtype();
  parallel_blocks(Device{}, dtype, threads, size, kUserBlock, [&](Tape& tape, std::int64_t first, std::int64_t rows) {
    const auto some = users.subspan(first, rows);
    const auto items = std::span(ranked.items).subspan(first * count, rows * count);
    const auto scores = std::span(ranked.scores).subspan(first * count, rows * count);
    const Tensor states = model.states(tape, some);
    if (candidates.empty()) {
      std::vector<std::vector<std::int32_t>> left_out(some.size());
      for (std::size_t u = 0; u < some.size(); ++u) model.left_out(some[u], left_out[u]);
      ops::top_items(
          tape.stream(), tape.arena(), table, states,
          [&](std::int64_t u) { return std::span<const std::int32_t>(left_out[u]); }, count, items.data());
    } else {
      for (std::size_t i = 0; i < items.size(); ++i) items[i] = candidates[i % candidates.size()];
    }
    const Tensor products = tape.keep({rows, count});
    std::vector<std::int32_t> indices(items.begin(), items.end());
    std::replace(indices.begin(), indices.end(), -1, 0);
    ops::row_scores(tape.stream(), products, states, model.items, indices);
    visit_float(dtype, [&]<class T>() { std::copy_n(products.data<T>(), scores.size(), scores.begin()); });
    for (std::int64_t u = 0; candidates.empty() && u < rows; ++u) {
      const auto begin = items.begin() + u * count, end = std::find(begin, begin + count, -1);
      const auto found = static_cast<std::size_t>(end - begin), at = static_cast<std::size_t>(u * count);
      sort_by_score(items.subspan(at, found), scores.subspan(at, found));
      std::fill_n(scores.begin() + u * count + (end - begin), count - (end - begin),
                  std::numeric_limits<double>::quiet_NaN());
    }
  });
  return ranked;
}

int recommend(World& world, const Args& args, Options& options, RecommendationOptions& o,
              const std::function<void()>& inspect, const std::function<Recommender(Task&)>& make) {
  if (!parse(world, options, args, o.config)) return 0;
  const auto reader = open_checkpoint(world, o.checkpoint, args, options, o.config);
  o.config.run.device = "cpu";
  if (o.config.run.precision != "fp64") o.config.run.precision = "fp32";
  world.together("checking the options", inspect);
  const int threads = prepare_cpu(world, o.config);
  const auto data_memory = make_node_data_memory(world);
  const auto task = load_task(world, o.config, *data_memory, &reader->file());
  Recommender model;
  world.together("loading weights and names", [&] {
    if (!o.other_data) reader->require_data_of(*task, o.config.data.path);
    reader->load_average_or_weights(task->params());
    model = make(*task);
  });
  std::vector<std::int32_t> candidates;
  const std::string all_items = described(model.item_ids, "items", model.data_path, "--candidates-file");
  world.together("choosing the items", [&] {
    for (const std::int64_t item : find_ids(written(o.candidates, o.candidates_file), model.item_ids,
                                            where("candidates", o.candidates_file), all_items))
      candidates.push_back(static_cast<std::int32_t>(item));
    require_usage(!options.given("top") || o.top <= model.item_ids.size(), "option top = ", o.top, ": more than ",
                  all_items);
    o.top = std::min(o.top, model.item_ids.size());
  });
  const std::int64_t count = candidates.empty() ? o.top : std::ssize(candidates);
  const bool lists = o.embeddings == "none";
  if (o.output.path.empty()) {
    if (world.rank() == 0) print(model, rank_items(model, model.chosen, count, candidates, threads));
  } else {
    PredictionTable table =
        lists ? lists_table(model, count, candidates, threads) : embeddings_table(model, o.of_users(), threads);
    table.block_rows = block_rows(table.rows, lists ? count : model.items->columns(), world.size());
    table.unit = o.of_users() ? "users" : "items";
    table.attributes = describe_source(task->kind(), o.checkpoint, hex64(task->data_hash()), "lockstep predict", args);
    if (lists && candidates.empty()) table.attributes.emplace_back("left_out", model.left_out_text);
    write_predictions(world, o.output, table);
  }
  if (world.rank() != 0) return 0;
  for (const std::string& note : model.notes) std::cout << "note: " << note << "\n";
  if (lists && candidates.empty()) {
    std::cout << "left out: " << model.left_out_text << "\n";
    if (o.top == model.item_ids.size()) std::cout << "note: the lists rank all " << o.top << " items\n";
    if (model.untrained > 0)
      std::cout << "note: items without a training interaction, which may be in the lists, as in evaluations: "
                << model.untrained << "\n";
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace lockstep
