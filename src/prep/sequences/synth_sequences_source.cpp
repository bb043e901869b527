#include <sstream>

#include "lockstep/base/memory_limit.hpp"
#include "lockstep/io/file_system.hpp"
#include "lockstep/prep/sequences/gap_sessions.hpp"
#include "lockstep/prep/sequences/interactions.hpp"
#include "prep/source_options.hpp"

namespace lockstep::prep {

namespace {
/// Writes one line `user <TAB> item <TAB> time` per interaction, which `sequences` reads.
std::string as_text(const SequenceSet& set) {
  std::ostringstream out;
  for (std::int64_t u = 0; u < set.n_users(); ++u) {
    for (auto k = static_cast<std::size_t>(set.offsets[u]);
         k < static_cast<std::size_t>(set.offsets[static_cast<std::size_t>(u) + 1]); ++k)
      out << u + 1 << '\t' << set.item[k] << '\t' << set.time_raw[k] << '\n';
  }
  return std::move(out).str();
}
}  // namespace

bool run_synth_sequences(const Args& args) {
  Options options(
      "lockstep-prep synth-sequences",
      "Synthetic sessions whose next item depends on the pause before the current one.",
      "Every item belongs to one of K categories and one of M clusters. The next item's cluster follows from the "
      "current item's cluster, and its category from the pause before the current item (K .. 2K-1 time units), "
      "which only the times show. The file records the rates of the best possible ranking with and without the "
      "pauses, for comparison with a model.");
  SourceOptions common(options, SourceOptions::Input::none);
  GapSessions what;
  std::string raw;
  options.add("users", &what.users, std::int64_t{2000}, between(1, 1 << 28), "sessions, one per user");
  options.add("min-length", &what.min_length, std::int64_t{20}, at_least(static_cast<double>(kShortestSession)),
              "items of the shortest session");
  options.add("max-length", &what.max_length, std::int64_t{50}, between(static_cast<double>(kShortestSession), 1e6),
              "items of the longest session");
  options.add("categories", &what.categories, std::int64_t{8}, between(2, 4096), "K, determined by the pause");
  options.add("clusters", &what.clusters, std::int64_t{4}, between(1, 4096), "M, determined by the order");
  options.add("members", &what.members, std::int64_t{20}, between(1, 65536), "items of each category and cluster");
  options.add("noise", &what.noise, 0.1, fraction, "probability that an item ignores the rule");
  options.add("unit", &what.unit_s, std::int64_t{60}, between(1, 86400 * 366), "time unit of the pauses").unit("s");
  options.add("seed", &what.seed, std::uint64_t{0}, "seed of every random choice");
  options.add("raw=FILE.tsv", &raw, "",
              "also write the interactions as text that `sequences` reads (user, item, time)");
  options.example("lockstep-prep synth-sequences --output sessions.h5", "2000 sessions over 640 items");
  options.example("lockstep-prep synth-sequences --users 300 --raw sessions.tsv --output sessions.h5",
                  "few sessions, and a raw file to try sequences with");
  if (!options.parse(args)) return false;
  require_usage(what.min_length <= what.max_length, "options min-length and max-length: ", what.min_length, " > ",
                what.max_length);
  require_usage(what.n_items() >= 2 * what.max_length && what.n_items() < (std::int64_t{1} << 28),
                "options categories, clusters, members: ", what.n_items(), " items for sessions of up to ",
                what.max_length, "; no user takes an item twice, so at least ", 2 * what.max_length,
                " are needed, and at most 2^28");
  require_writable(common.output);
  if (!raw.empty()) {
    require_writable(raw);
    require_different(common.output, raw);
  }

  const double interactions =
      static_cast<double>(what.users) * static_cast<double>(what.min_length + what.max_length) / 2;
  constexpr std::size_t kInteraction =
      sizeof(std::int32_t) + 2 * sizeof(std::int64_t);  // item, time as read and scaled
  require_memory_for(interactions * kInteraction, join("making the data: about ", interactions, " interactions need"),
                     "lower users or max-length");
  require_space(common.output, static_cast<std::int64_t>(interactions * kInteraction));
  SequenceSet set = make_gap_sessions(what);
  if (!raw.empty()) write_text_atomically(raw, as_text(set));
  summarise(set, common.summary);
  const IdealRates ideal = ideal_rates(set, HeldOut::test);
  common.summary.line("best possible", "test HR@10 ", ideal.gap.hr, ", NDCG@10 ", ideal.gap.ndcg,
                      " with the pauses (time span ", 2 * what.categories - 1, " or more), ", ideal.order.hr, ", ",
                      ideal.order.ndcg, " without");
  common.settle(set.notes);
  write_sequence_set(common.output, set);
  common.print_written();
  return true;
}

}  // namespace lockstep::prep
