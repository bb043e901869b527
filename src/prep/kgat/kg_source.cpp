#include <set>

#include "prep/kgat/kg_output.hpp"
#include "prep/kgat/kg_tables.hpp"

namespace lockstep::prep {

namespace {
namespace fs = std::filesystem;

struct ListFile {
  const char* file;
  const char* what;
  std::size_t columns;
  std::int64_t KgSizes::*size;
};
constexpr ListFile kLists[] = {{"item_list.txt", "item", 3, &KgSizes::items},
                               {"entity_list.txt", "entity", 2, &KgSizes::entities},
                               {"user_list.txt", "user", 2, &KgSizes::users},
                               {"relation_list.txt", "relation", 2, &KgSizes::kg_relations}};

/// The name of the folder's only file with this ending, "" if it has none. errors  usage: several
std::string only_file(const fs::path& folder, const std::string& ending) {
  std::string found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ending) continue;
    const std::string name = entry.path().filename().string();
    require_usage(found.empty(), "option input = '", folder.string(), "': it has '", found, "' and '", name,
                  "'; name one with --interactions, --kg or --link");
    found = name;
  }
  return found;
}

/// The lists that belong to train.txt, test.txt and kg_final.txt, for `lockstep predict --user-names, --item-names`.
/// Blanks in ids become '_', because blanks separate the fields of a list, and more of them where ids would be the same.
void write_lists(const fs::path& folder, const KgNames& names) {
  const auto write = [&](const char* file, const std::vector<std::string>& ids, const std::vector<std::string>& third) {
    std::string text = third.empty() ? "org_id remap_id\n" : "org_id remap_id freebase_id\n";
    const auto word = [](std::string id) {
      std::ranges::replace(id, ' ', '_');
      return id;
    };
    std::set<std::string> used;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::string id = word(ids[i]);
      while (!used.insert(id).second) id += '_';
      text += join(id, " ", i, third.empty() ? "" : " " + word(third[i]), "\n");
    }
    write_text_atomically(folder / file, text);
  };
  write("user_list.txt", names.users, {});
  write("item_list.txt", names.items, names.entities);
  write("entity_list.txt", names.entities, {});
  write("relation_list.txt", names.relations, {});
}

KgPolicy policy_of(const std::string& word) {
  if (word == "refuse") return KgPolicy::refuse;
  return word == "keep" ? KgPolicy::keep : KgPolicy::drop;
}
}  // namespace

bool run_kg(const Args& args) {
  Options options(
      "lockstep-prep kg",
      "Interactions and a knowledge graph in the KGAT text format: sorted graph, inverse relations, initial "
      "values.",
      "The folder holds train.txt and test.txt (a line per user: user item item ...), kg_final.txt (head relation "
      "tail), and optionally item_list.txt, entity_list.txt, user_list.txt, relation_list.txt, whose entries are only "
      "counted. The files may be compressed with gzip. Items are the entities 0 .. n_items-1. Without train.txt the "
      "folder's .inter, .kg and .link files are read (RecBole's atomic files), with ids of any kind; a random share of "
      "each user's interactions becomes the test set.");
  std::string input, train, test, kg, interactions, link, duplicates, parallel, overlap, empty_users, empty_relations,
      missing_ids;
  bool no_kg = false;
  KgRules rules;
  options.add("input,i=DIR", &input, "", "folder with the text files").required();
  KgOutput out(options, "seed of --test-fraction and --val-fraction");
  options.add("train=FILE", &train, "train.txt", "file of train interactions, in the folder");
  options.add("test=FILE", &test, "test.txt", "file of test interactions, in the folder");
  options.add("kg=FILE", &kg, "kg_final.txt", "file of triples, in the folder");
  options.add(
      "interactions=FILE", &interactions, "",
      "table of interactions with ids of any kind, in the folder, instead of --train and --test; --kg is then a "
      "table too");
  options.add("link=FILE", &link, "", "with --interactions: table of items and their entities, in the folder");
  InteractionOptions table;
  double test_fraction = 0;
  add_interaction_options(options, table);
  options.add("test-fraction", &test_fraction, 0.2, below_one,
              "with --interactions: share of each user's interactions that becomes the test set; at least one stays");
  options.add("no-kg", &no_kg, false, "only interactions, for a matrix factorisation");
  options.choice("duplicates", &duplicates, "once", {"once", "refuse"},
                 "repeated interactions, triples or lines of a user: count once, or fail");
  options.choice("parallel", &parallel, "keep", {"keep", "first", "refuse"},
                 "several triples between two entities, in either direction: keep all, keep the first, or fail");
  options.choice("overlap", &overlap, "keep", {"keep", "drop", "refuse"},
                 "test items that are train items of the user: keep (they count as misses), drop from test, or fail");
  options.choice("empty-users", &empty_users, "keep", {"keep", "refuse"}, "users without train items");
  options.choice("empty-relations", &empty_relations, "keep", {"keep", "refuse"}, "relation ids without triples");
  options.choice("missing-ids", &missing_ids, "keep", {"keep", "refuse"},
                 "user, item and entity ids below the largest that never occur");
  const auto size = [&](const char* key, std::int64_t* target, const char* what) {
    options.add(key, target, std::int64_t{0}, between(0, static_cast<double>(kLargestId)),
                std::string("number of ") + what + "; larger ids are errors; 0: from the largest id");
  };
  size("users", &rules.users, "users");
  size("items", &rules.items, "items");
  size("entities", &rules.entities, "entities");
  size("relations", &rules.relations, "relations of the knowledge graph");
  options.add("max-nodes", &rules.max_nodes, std::int64_t{100'000'000}, between(1, static_cast<double>(kLargestId)),
              "fail if there are more entities and users than this, for example because of a mistyped id");
  options.example("lockstep-prep kg --input raw/kgat-ml1m --output ml1m.h5", "a whole data set");
  options.example("lockstep-prep kg --input raw/my-shop --duplicates refuse --overlap refuse --output shop.h5",
                  "the same with strict checks");
  options.example("lockstep-prep kg --input raw/kgat-amazon-book-cf --no-kg --output book.h5",
                  "only interactions, for a matrix factorisation");
  if (!options.parse(args)) return false;
  rules.duplicates = policy_of(duplicates);
  rules.parallel = policy_of(parallel);
  rules.overlap = policy_of(overlap);
  rules.empty_users = policy_of(empty_users);
  rules.empty_relations = policy_of(empty_relations);
  rules.missing_ids = policy_of(missing_ids);

  const fs::path folder = input;
  require_usage(fs::is_directory(folder), "option input = '", input, "': no such folder");
  std::error_code absent;
  require_usage(!fs::equivalent(folder, out.text, absent), "option text = '", out.text,
                "': it is the input, whose files it would replace; choose another folder");
  if (interactions.empty() && !fs::exists(folder / train)) {
    interactions = only_file(folder, ".inter");
    if (!interactions.empty() && !fs::exists(folder / kg)) kg = only_file(folder, ".kg");
    if (!interactions.empty() && link.empty()) link = only_file(folder, ".link");
  }
  const bool tables = !interactions.empty();
  require_usage(tables || (table.columns.empty() && table.where.empty() && table.user_column.empty() &&
                           table.item_column.empty() && table.format == "auto" && link.empty()),
                "options columns, where, format, user-column, item-column, link: they describe a table; name it with "
                "--interactions");
  require_usage(no_kg || (!kg.empty() && fs::exists(folder / kg)), "reading '", (folder / kg).string(),
                "': no such file; --no-kg prepares only interactions, synth-kg generates a graph");
  std::vector<fs::path> files =
      tables ? std::vector{folder / interactions} : std::vector{folder / train, folder / test};
  if (!no_kg) files.push_back(folder / kg);
  if (!link.empty()) files.push_back(folder / link);
  require_writable(out.output, files);
  std::vector<KgFinding> findings;
  KgSet set;
  KgNames names;
  if (tables) {
    KgTables read = read_kg_tables(folder / interactions, table, no_kg ? std::nullopt : std::optional(folder / kg),
                                   link.empty() ? std::nullopt : std::optional(folder / link), out.summary);
    set = read_kg_text(read.interactions, {"", "", true}, read.kg, rules, findings);
    std::erase_if(findings, [](const KgFinding& f) { return f.what.starts_with("files without test"); });
    set.test = carve(set, test_fraction, out.seed, "prep.kg.test");
    set.sizes.test = std::ssize(set.test.item);
    names = std::move(read.names);
  } else {
    std::optional<KgText> kg_text;
    if (!no_kg) kg_text = read_kg_file(folder / kg);
    set = read_kg_text(read_kg_file(folder / train), read_kg_file(folder / test), kg_text, rules, findings);
  }
  set.name = fs::weakly_canonical(folder).filename().string();
  for (const auto& file : files) record_source(set, file);
  if (tables)
    out.summary.note("the test set is a random share of ", test_fraction,
                     " of each user's interactions, whatever their times (--test-fraction, --seed)");
  for (const auto& list : kLists) {
    if (!fs::exists(folder / list.file)) continue;
    require_writable(out.output, {folder / list.file});
    findings.push_back(read_kg_list(read_kg_file(folder / list.file), list.columns, set.sizes.*list.size, list.what));
    record_source(set, folder / list.file);
  }
  out.summary.line("files", listed(set.sources));
  const auto note = [&](const char* key, const std::string& value) { set.notes.emplace_back(key, value); };
  note("duplicates", duplicates);
  note("parallel", parallel);
  note("overlap", overlap);
  if (tables) {
    set.notes.emplace_back("test_fraction", test_fraction);
    if (out.valid_fraction == 0) set.notes.emplace_back("seed", static_cast<std::int64_t>(out.seed));
  }
  out.write(set, findings);
  if (tables && !out.text.empty()) write_lists(out.text, names);
  return true;
}

}  // namespace lockstep::prep
