#include "prep/kgat/kg_output.hpp"

#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/prep/files.hpp"
#include "lockstep/io/line_reader.hpp"

namespace lockstep::prep {

KgOutput::KgOutput(Options& options, const std::string& seed_help) : SourceOptions(options, Input::none) {
  options.add("name", &name, "", "name of the data set; default: the name of the input folder or task");
  options.add("valid-fraction", &valid_fraction, 0.0, below_one,
              "move this share of each user's train items to a validation set; at least one stays");
  options.add("seed", &seed, std::uint64_t{2019}, seed_help);
  options.add("symmetric-upstream", &symmetric_upstream, false,
              "compute the symmetric values as the reference programs do: 0 for interactions");
  options.add("gzip", &gzip, 0, between(0, 9), "deflate level of the arrays: 0 none, 1 fastest .. 9 smallest");
}

void KgOutput::write(KgSet& set, const std::vector<KgFinding>& findings) {
  require_writable(output);
  if (!name.empty()) set.name = name;
  if (valid_fraction > 0) {
    carve_validation(set, valid_fraction, seed);
    set.notes.emplace_back("valid_fraction", valid_fraction);
    set.notes.emplace_back("seed", static_cast<std::int64_t>(seed));
  }
  set.symmetric = symmetric_upstream ? SymmetricForm::upstream : SymmetricForm::sound;
  set.ckg = build_ckg(set.sizes, set.train, set.triples, set.symmetric);
  settle(set.notes);
  write_kg_set(output, set, gzip);

  const KgSizes& sizes = set.sizes;
  summary.line("users", sizes.users);
  summary.line("items", sizes.items);
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
  for (const auto& finding : findings) summary.note(finding.count, " ", finding.what, "; ", finding.first);
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
