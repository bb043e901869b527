#pragma once
// Shared by `lockstep predict` of the kinds that recommend items to users: options, selection of users and items,
// computation, lists on the terminal, files.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/tape.hpp"
#include "lockstep/tasks/prediction_file.hpp"
#include "tasks/id_table.hpp"

namespace lockstep {

class Task;

struct RecommendationOptions {
  RunConfig config;
  std::string checkpoint;
  std::vector<std::string> users;
  std::string users_file;
  bool all_users = false;
  std::int64_t top = 0;
  std::vector<std::string> candidates;
  std::string candidates_file;
  std::string embeddings;  ///< none | users | items
  std::string exclude;     ///< all | train+val | train | none
  bool other_data = false;
  PredictionOutput output;

  /// Whether users are needed: not for the table of all items.
  bool of_users() const { return embeddings != "items"; }
  /// The splits whose items are left out: the first 0 to 3 of train, val and test.
  int excluded_splits() const;
  /// "the user's items of train and valid"; "nothing".
  std::string left_out_text() const;
};
void add_recommendation_options(Options& options, RecommendationOptions& o);
/// Checks that the options are compatible, and on rank 0 the output.
///
/// source   a further source of users: its option and its value, or "" for none
/// inputs   further files that the command reads
/// errors   usage
void check(const RecommendationOptions& o, const Options& options, World& world,
           const std::pair<std::string, std::string>& source, std::vector<std::string> inputs);
/// The numbers of the users that --user, --users-file or --all-users names.
/// errors  usage, data: see find_ids()
std::vector<std::int64_t> select_users(const RecommendationOptions& o, const IdTable& users,
                                       const std::string& data_path);

/// A model whose score of an item for a user is the inner product of the user's state and the item's row.
struct Recommender {
  std::string data_path;
  IdTable users;  ///< all that the model can serve
  IdTable item_ids;
  std::vector<std::int64_t> chosen;  ///< the users to serve, by number
  OwnedTensor items;                 ///< (I, C), f32 | f64, on the host
  std::string left_out_text;         ///< what the lists leave out: "the user's items of train and valid", "nothing"
  std::int64_t untrained = 0;        ///< items without a training interaction
  std::vector<std::string> notes;    ///< on the input
  /// The states of users, (users.size(), C), in the tape's arena. Several threads call this at the same time.
  std::function<Tensor(Tape& tape, std::span<const std::int64_t> users)> states;
  /// Appends the items that a user's list leaves out, ascending.
  std::function<void(std::int64_t user, std::vector<std::int32_t>& items)> left_out;
  /// The items of a user's history to show on the terminal, oldest first; null: none.
  std::function<std::vector<std::int32_t>(std::int64_t user)> recent = {};
};

/// A user's items with their scores, best first. If fewer than the wanted number remain, the rest is item -1 with
/// a score of NaN.
struct RankedItems {
  std::vector<std::int32_t> items;
  std::vector<double> scores;
};

/// The scores of `candidates` for each user, in their order; without candidates, the `count` best items of each user. A
/// result depends neither on the number of threads nor, for a user at the same position in a block, on the other users.
/// shapes  (users.size() * count)
RankedItems rank_items(const Recommender& model, std::span<const std::int64_t> users, std::int64_t count,
                       std::span<const std::int32_t> candidates, int threads);

/// Runs the command: loads the checkpoint's task with its weights on the CPU, in fp64 if the run used it, else in fp32.
/// Prints lists for the chosen users, or writes the output: user, item, score (and name) per user; with --embeddings
/// user or item, and embedding. Returns the exit code. Collective.
///
/// options  with add_recommendation_options(), which set `o`
/// inspect  checks of the options that need no data
/// make     the model; it may refer to the task
/// errors   usage, data: unknown candidates, more items than there are; see write_predictions()
int recommend(World& world, const Args& args, Options& options, RecommendationOptions& o,
              const std::function<void()>& inspect, const std::function<Recommender(Task&)>& make);

}  // namespace lockstep
