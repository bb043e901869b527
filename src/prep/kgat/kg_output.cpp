#include "prep/kgat/kg_output.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/io/line_reader.hpp"

namespace lockstep::prep {

namespace {
namespace fs = std::filesystem;

std::string text_of(const UserItems& part) {
  std::string text;
  for (std::int64_t user = 0; user < part.users(); ++user) {
    text += std::to_string(user);
    for (const std::int32_t item : part.of(user)) text += " " + std::to_string(item);
    text += "\n";
  }
  return text;
}

/// How many triples each relation has, and whether the items are in the graph.
void summarise_graph(const KgSet& set, Summary& summary) {
  const KgSizes& sizes = set.sizes;
  if (sizes.kg_triples == 0) return;
  std::vector<std::int64_t> count(at(sizes.kg_relations), 0), order(count.size());
  std::vector<std::uint8_t> head(at(sizes.items), 0), tail(at(sizes.items), 0);
  for (const Triple& triple : set.triples) {
    ++count[at(triple.relation)];
    if (triple.head < sizes.items) head[at(triple.head)] = 1;
    if (triple.tail < sizes.items) tail[at(triple.tail)] = 1;
  }
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return count[at(a)] > count[at(b)]; });
  constexpr std::size_t kShown = 5;
  const std::size_t shown = std::min(order.size(), kShown);
  summary.line("largest relations",
               listed(std::span(order).first(shown), ", ", [&](std::int64_t r) { return join(r, ": ", count[at(r)]); }),
               order.size() > shown ? join(" and ", order.size() - shown, " more") : "");
  const auto heads = std::ranges::count(head, 1), tails = std::ranges::count(tail, 1);
  summary.line("items in the graph", heads, " as heads, ", tails, " as tails, of ", sizes.items);
  if (heads + tails == 0)
    summary.warning("none of the ", sizes.items, " items occurs in a triple, so the graph says nothing about them; ",
                    "items must be the first entities, 0 .. ", sizes.items - 1);
}

/// Writes the set, with these train items, as the text files that `kg` reads.
void write_kg_text(const fs::path& folder, const KgSet& set, const UserItems& train) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  require_usage(!failed, "option text = '", folder.string(), "': ", failed.message());
  write_text_atomically(folder / "train.txt", text_of(train));
  write_text_atomically(folder / "test.txt", text_of(set.test));
  std::string text;
  for (const auto& t : set.triples) {
    text += std::to_string(t.head) + " " + std::to_string(t.relation) + " " + std::to_string(t.tail);
    text += "\n";
  }
  write_text_atomically(folder / "kg_final.txt", text);
}

}  // namespace

KgOutput::KgOutput(Options& options, const std::string& seed_help) : SourceOptions(options, Input::none) {
  options.add("name", &name, "", "name of the data set; default: the name of the input folder or task");
  options.add("text=DIR", &text, "", "also write train.txt, test.txt and kg_final.txt into this folder");
  options.add("val-fraction,valid-fraction", &valid_fraction, 0.0, below_one,
              "move this share of each user's train items to a validation set; at least one stays");
  options.add("seed", &seed, std::uint64_t{2019}, seed_help);
  options.add("symmetric-upstream", &symmetric_upstream, false,
              "compute the symmetric values as the reference programs do: 0 for interactions");
  options.add("gzip", &gzip, 0, between(0, 9), "deflate level of the arrays: 0 none, 1 fastest .. 9 smallest");
}

void KgOutput::write(KgSet& set, const std::vector<KgFinding>& findings) {
  require_writable(output);
  if (!name.empty()) set.name = name;
  const UserItems train = text.empty() ? UserItems{} : set.train;  // with those that become validation items
  if (valid_fraction > 0) {
    set.valid = carve(set, valid_fraction, seed, "prep.kg.valid");
    set.notes.emplace_back("valid_fraction", valid_fraction);
    set.notes.emplace_back("seed", static_cast<std::int64_t>(seed));
  }
  set.symmetric = symmetric_upstream ? SymmetricForm::upstream : SymmetricForm::sound;
  set.ckg = build_ckg(set.sizes, set.train, set.triples, set.symmetric);
  const KgSizes& sizes = set.sizes;
  std::vector<std::uint8_t> trained(at(sizes.items), 0);
  for (const std::int32_t item : set.train.item) trained[at(item)] = 1;
  std::int64_t active = 0;
  for (std::int64_t user = 0; user < sizes.users; ++user) active += !set.train.of(user).empty();
  summary.line("users", sizes.users, ", ", active, " of them with train items");
  summary.line("items", sizes.items, ", ", std::ranges::count(trained, 1), " of them with train interactions");
  summary.line("entities", sizes.entities);
  summary.line("interactions", sizes.train, " train + ", set.valid.item.size(), " validation + ", sizes.test, " test");
  summary.line("triples", sizes.kg_triples, " of ", sizes.kg_relations, " relations");
  summary.line("graph", sizes.nodes(), " nodes, ", sizes.ckg_triples(), " triples of ", sizes.relations(),
               " relations, ", set.ckg.nnz(), " pairs");
  if (sizes.kg_triples > 0) {
    // Interactions are never parallel, so every surplus triple comes from the knowledge graph.
    const auto surplus = static_cast<double>(sizes.ckg_triples() - set.ckg.nnz());
    summary.line("parallel", exact(std::round(surplus / static_cast<double>(2 * sizes.kg_triples) * 1e4) / 100),
                 " % of the triples and their inverses share their pair with another");
  }
  summarise_graph(set, summary);
  for (const auto& finding : findings) {
    if (finding.implausible)
      summary.warning(finding.count, " ", finding.what, "; ", finding.first);
    else
      summary.note(finding.count, " ", finding.what, "; ", finding.first);
  }
  settle(set.notes);
  if (!text.empty()) write_kg_text(text, set, train);
  write_kg_set(output, set, gzip);
  print_written();
}

KgText read_kg_file(const std::filesystem::path& path) {
  LineReader lines(path);
  KgText read{path.string(), ""};
  for (std::string line; lines.next(line);) read.text += line += '\n';
  return read;
}

void record_source(KgSet& set, const std::filesystem::path& path) {
  set.sources.push_back(path.filename().string());
  set.sha256.push_back(sha256_of(path));
}

}  // namespace lockstep::prep
