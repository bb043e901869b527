#include "lockstep/io/file_system.hpp"
#include "lockstep/prep/kgat/kg_synth.hpp"
#include "prep/kgat/kg_output.hpp"

namespace lockstep::prep {

namespace fs = std::filesystem;

bool run_synth_kg(const Args& args) {
  Options options(
      "lockstep-prep synth-kg",
      "Synthetic graphs: preferences that only the graph reveals, or a graph of a given size for speed runs.",
      "planted: every item has a taste, which one triple names. Users' train items are open items of their "
      "tastes; their test items are hidden items, which occur in train only by chance. Without the graph no "
      "model can tell the hidden items apart. sized: adds entities and distinct random triples to the "
      "interactions of a folder. That graph is independent of the interactions: do not evaluate quality with "
      "it.");
  std::string task, input;
  KgOutput out(options, "seed of every random choice");
  options.choice("task", &task, "planted", {"planted", "sized"}, "kind of graph");

  PlantedKg rule;
  options.add("users", &rule.users, std::int64_t{600}, between(1, 1e8), "planted: users");
  options.add("items", &rule.items, std::int64_t{400}, between(2, 1e8), "planted: items, half of them hidden");
  options.add("tastes", &rule.tastes, std::int64_t{20}, between(1, 1e7),
              "planted: number of tastes; item i has taste i mod tastes");
  options.add("tastes-per-user", &rule.tastes_per_user, std::int64_t{2}, between(1, 1e7), "planted: tastes of a user");
  options.add("train-items", &rule.train_items, std::int64_t{12}, between(1, 1e8), "planted: open items of a user");
  options.add("test-items", &rule.test_items, std::int64_t{8}, between(1, 1e8), "planted: hidden items of a user");
  options.add("noise", &rule.noise, std::int64_t{4}, between(0, 1e8),
              "planted: further train items of a user, drawn from all hidden items");
  options.add("distractors", &rule.distractors, std::int64_t{1}, between(0, 1e8),
              "planted: meaningless triples per item");
  options.add("fillers", &rule.fillers, std::int64_t{100}, between(0, 1e8), "planted: meaningless entities");
  SizedKg shape;
  std::int64_t relations = 0;
  options.add("input,i=DIR", &input, "", "sized: folder with train.txt and test.txt");
  options.add("entities", &shape.entities, std::int64_t{113487}, between(1, static_cast<double>(kLargestId)),
              "sized: entities, items included");
  options.add("triples", &shape.triples, std::int64_t{2557746}, between(1, 1e10), "sized: distinct triples");
  options.add("relations", &relations, std::int64_t{0}, between(0, 1e8),
              "relations of the knowledge graph; 0: 4 for planted, 39 for sized");
  options.example("lockstep-prep synth-kg --output planted.h5", "600 users, 400 items, 20 tastes");
  options.example("lockstep-prep synth-kg --task sized --input raw/kgat-amazon-book-cf --output book.h5",
                  "the size of amazon-book: 113487 entities, 39 relations, 2557746 triples");
  if (!options.parse(args)) return false;
  require_writable(out.output);
  for (const char* file : {"train.txt", "test.txt", "kg_final.txt"})
    if (!out.text.empty()) require_different(out.output, fs::path(out.text) / file);

  KgSet set;
  std::vector<KgFinding> findings;
  if (task == "planted") {
    require_usage(input.empty(), "option input: task planted reads nothing; did you mean --task sized?");
    if (relations > 0) rule.relations = relations;
    rule.seed = out.seed;
    set = make_planted_kg(rule);
    set.name = "planted";
    for (const auto& [key, value] : {std::pair{"tastes", rule.tastes},
                                     {"tastes_per_user", rule.tastes_per_user},
                                     {"noise", rule.noise},
                                     {"distractors", rule.distractors},
                                     {"fillers", rule.fillers}})
      set.notes.emplace_back(key, value);
  } else {
    require_usage(!input.empty(), "option input: task sized needs a folder with train.txt and test.txt");
    const fs::path folder = input;
    require_usage(fs::is_directory(folder), "option input = '", input, "': no such folder");
    std::error_code absent;
    require_usage(!fs::equivalent(folder, out.text, absent), "option text = '", out.text,
                  "': it is the input, whose files it would replace; choose another folder");
    set =
        read_kg_text(read_kg_file(folder / "train.txt"), read_kg_file(folder / "test.txt"), std::nullopt, {}, findings);
    std::erase_if(findings, [](const KgFinding& f) {
      return f.what.ends_with("that never occur") && !f.what.starts_with("user");
    });
    if (relations > 0) shape.relations = relations;
    shape.seed = out.seed;
    add_sized_kg(set, shape);
    set.name = fs::weakly_canonical(folder).filename().string() + "-sized";
    record_source(set, folder / "train.txt");
    record_source(set, folder / "test.txt");
  }
  set.notes.emplace_back("generator", std::string("synth-kg"));
  set.notes.emplace_back("task", task);
  if (out.valid_fraction == 0) set.notes.emplace_back("seed", static_cast<std::int64_t>(out.seed));
  out.write(set, findings);
  return true;
}

}  // namespace lockstep::prep
