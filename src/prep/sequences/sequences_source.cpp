#include "lockstep/prep/sequences/interactions.hpp"
#include "prep/source_options.hpp"

namespace lockstep::prep {

namespace {
/// Notes that ids are text because some are not integers, which the user may not expect.
void remark_on_ids(const IdTable& table, const RawIds& ids, const Interactions& raw, const char* what,
                   Summary& summary) {
  if (!ids.is_text) return;
  std::size_t integers = 0, first_text = table.size();
  for (std::size_t entry = 0; entry < table.size(); ++entry) {
    const std::string& id = table.id(entry);
    const bool digits = id.find_first_not_of("0123456789") == std::string::npos;
    integers += digits;
    if (!digits) first_text = std::min(first_text, entry);
  }
  if (integers == 0 || first_text == table.size()) return;
  const auto place = table.place(first_text);
  summary.note(what, " ids are taken as text because of '", table.id(first_text), "' (", raw.files[place.file].string(),
               ", line ", place.line, ")");
}
}  // namespace

bool run_sequences(const Args& args) {
  Options options(
      "lockstep-prep sequences", "Interactions of users with items, as sequences in time.",
      "Formats: movielens (user::item::rating::timestamp), tsv4 (user, item, rating, time), tsv3 (user, "
      "item, time), pairs (user item, in time order, no times), triples (user item time, blanks), csv (a header names "
      "the columns, also as name:type; commas, tabs, semicolons, bars or blanks), json (an object per line), each also "
      "compressed with gzip. Without --format the first line determines the format. --columns reads any other table "
      "without a header. Times are numbers of --time-unit or ISO dates. Ids are integers or text; every line counts as "
      "an interaction, unless --where leaves it out.");
  options.section("input", "What to read from the files");
  SourceOptions common(options);
  InteractionOptions raw;
  SequenceOptions sequence;
  std::string repeated;
  add_interaction_options(options, raw);
  options.choice("input.repeated,repeated", &repeated, "keep", {"keep", "drop"},
                 "lines that repeat user, item and time of an earlier line");
  options.choice("input.ids,ids", &sequence.ids, "auto", {"auto", "integer", "text"},
                 "integer ids sort as numbers, text ids by bytes; auto: integers if all ids are");
  options.section("filter", "Filter");
  options.add("filter.min_user,min-user", &sequence.min_user, std::int64_t{5}, at_least(1),
              "drop users with fewer interactions in the whole input, in one pass");
  options.add("filter.min_item,min-item", &sequence.min_item, std::int64_t{5}, at_least(1),
              "drop items with fewer interactions in the whole input");
  options.add("filter.keep_ids,keep-ids", &sequence.keep_ids, false,
              "number users and items by their raw ids, gaps included, as some public code does");
  options.section("time", "Times");
  options.choice("time.scale", &sequence.time_scale, "per_user_min", time_scales(),
                 "unit of scaled times: each user's smallest non-zero gap, a fixed unit, or (raw) seconds");
  options.section("split", "Training, validation and test");
  options.add("split.min_split,min-split", &sequence.min_split, std::int64_t{3}, at_least(3),
              "users with fewer interactions are only for training; the last interaction of the others is for the "
              "test, the one before it for validation");
  options.example("lockstep-prep sequences --input ml-1m/ratings.dat --output ml-1m.h5",
                  "MovieLens, as the papers filter it");
  options.example("lockstep-prep sequences --input Amazon_Beauty.inter --output beauty.h5", "order only, no times");
  options.example(
      "lockstep-prep sequences --input ratings.csv --user-column userId --item-column movieId --time-scale unit:day "
      "--output days.h5",
      "a CSV file with another header, times in days");
  options.example(
      "lockstep-prep sequences --input reviews.csv --columns user,item,rating,time --where 'rating >= 4' "
      "--output liked.h5",
      "a CSV file without a header, good ratings only");
  options.example(
      "lockstep-prep sequences --input ratings.dat --min-user 1 --min-item 1 --keep-ids --min-split 4 --time-scale raw "
      "--output raw.h5",
      "unfiltered, raw ids and seconds, for comparison with public code");
  if (!options.parse(args)) return false;
  require_usage(!(sequence.keep_ids && sequence.ids == "text"),
                "options keep-ids and ids: text ids cannot be kept as numbers");
  const auto files = expand_files(common.input);
  require_writable(common.output, files);

  Interactions interactions = read_interactions(files, raw);
  const std::int64_t repeats = repeated_lines(interactions, repeated == "drop" ? Repeated::drop : Repeated::keep);
  SequenceReport report;
  SequenceSet set = make_sequences(interactions, sequence, report);
  for (const auto& file : files) {
    const char* comma = set.source_name.empty() ? "" : ",";
    set.source_name += comma + file.filename().string();
    set.source_sha256 += comma + sha256_of(file);
  }
  Summary& summary = common.summary;
  const auto& counts = interactions.counts;
  for (const auto& reading : interactions.readings) summary.line("format", reading);
  for (std::size_t c = 0; c < raw.where.size(); ++c)
    summary.line("left out", counts.left_out[c], " lines by --where '", raw.where[c], "'");
  if (counts.trimmed > 0) summary.note("blanks around ", counts.trimmed, " fields are removed");
  if (counts.empty > 0) summary.note(counts.empty, " empty lines are skipped");
  remark_on_ids(interactions.users, set.users, interactions, "user", summary);
  remark_on_ids(interactions.items, set.items, interactions, "item", summary);
  summarise_ids(interactions.users, interactions.user, "user", summary);
  summarise_ids(interactions.items, interactions.item, "item", summary);
  if (!interactions.has_time && interactions.left_aside)
    summary.note("no times, so the order of the lines counts; if a column left aside holds times, name it with ",
                 "--time-column, or `time` in --columns");
  summarise_times(interactions, raw.time_unit, summary);
  if (!interactions.fraction.empty())
    summary.note("some times have fractions of a second; they decide the order, whole seconds are stored");
  if (repeats > 0)
    summary.note(repeats, " lines repeat user, item and time of an earlier line and are ",
                 repeated == "drop" ? "dropped" : "kept; --repeated drop drops them");
  summarise(report, set, summary);
  common.settle(set.notes);
  write_sequence_set(common.output, set);
  common.print_written();
  return true;
}

}  // namespace lockstep::prep
