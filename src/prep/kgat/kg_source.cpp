#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/source.hpp"
#include "prep/kgat/kg_output.hpp"

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
      "counted. The files may be compressed with gzip. Items are the entities 0 .. n_items-1.");
  std::string input, train, test, kg, duplicates, parallel, overlap, empty_users, empty_relations, missing_ids;
  bool no_kg = false;
  KgRules rules;
  options.add("input,i", &input, "", "folder with the text files").value_name("DIR").required();
  KgOutput out(options, "seed of --valid-fraction");
  options.add("train", &train, "train.txt", "file of train interactions, in the folder").value_name("FILE");
  options.add("test", &test, "test.txt", "file of test interactions, in the folder").value_name("FILE");
  options.add("kg", &kg, "kg_final.txt", "file of triples, in the folder").value_name("FILE");
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
  require_usage(no_kg || fs::exists(folder / kg), "reading '", (folder / kg).string(),
                "': no such file; --no-kg prepares only interactions, synth-kg generates a graph");
  require_writable(out.output, {folder / train, folder / test, folder / kg});
  std::optional<KgText> kg_text;
  if (!no_kg) kg_text = read_kg_file(folder / kg);
  std::vector<KgFinding> findings;
  KgSet set = read_kg_text(read_kg_file(folder / train), read_kg_file(folder / test), kg_text, rules, findings);
  set.name = fs::weakly_canonical(folder).filename().string();
  record_source(set, folder / train);
  record_source(set, folder / test);
  if (!no_kg) record_source(set, folder / kg);
  for (const auto& list : kLists) {
    if (!fs::exists(folder / list.file)) continue;
    require_writable(out.output, {folder / list.file});
    findings.push_back(read_kg_list(read_kg_file(folder / list.file), list.columns, set.sizes.*list.size, list.what));
    record_source(set, folder / list.file);
  }
  const auto note = [&](const char* key, const std::string& value) { set.notes.emplace_back(key, value); };
  note("duplicates", duplicates);
  note("parallel", parallel);
  note("overlap", overlap);
  out.write(set, findings);
  return true;
}

}  // namespace lockstep::prep
