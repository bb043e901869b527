#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/prep/kgat/kg_set.hpp"

namespace lockstep::prep {

/// What to do with input that is legal but suspicious.
enum class KgPolicy : std::uint8_t {
  keep,    ///< report it
  drop,    ///< report it and drop the surplus
  refuse,  ///< fail with file and line
};

struct KgRules {
  KgPolicy duplicates = KgPolicy::drop;   ///< repeated interactions and triples; drop or refuse
  KgPolicy parallel = KgPolicy::keep;     ///< several relations between two entities; drop keeps the first
  KgPolicy overlap = KgPolicy::keep;      ///< test items that are train items of the user; drop removes them from test
  KgPolicy empty_users = KgPolicy::keep;  ///< users without train items
  KgPolicy empty_relations = KgPolicy::keep;  ///< unused relation ids below the largest
  KgPolicy missing_ids = KgPolicy::keep;      ///< unused user, item and entity ids below the largest
  std::int64_t users = 0, items = 0, entities = 0,
               relations = 0;            ///< declared sizes; 0: from the largest id
  std::int64_t max_nodes = 100'000'000;  ///< a mistyped id must not exhaust the memory
};

/// A text and its name in messages.
struct KgText {
  std::string name, text;
  bool table = false;  ///< made from a table: an interaction per line, and other lines are empty
};

/// A suspicious fact about the input.
struct KgFinding {
  std::string what;
  std::int64_t count = 0;
  std::string first;         ///< where it occurs first, and the text there
  bool implausible = false;  ///< a warning
};

/// Parses train, test and, if given, the knowledge graph into sizes, train, test and triples of a set; does not build
/// the graph. Fields are separated by blanks or tabs; blank lines are skipped; lines of one user are merged.
///
/// errors  data, with file and line: a field that is not an id, an id out of range, a line of the knowledge graph
///         without exactly three fields, input that `rules` refuse; no interactions at all
KgSet read_kg_text(const KgText& train, const KgText& test, const std::optional<KgText>& kg, const KgRules& rules,
                   std::vector<KgFinding>& findings);

/// Checks a list file against the ids of a set and counts the names. After a header line each line has `columns`
/// fields, split from the right: a name, which may contain blanks or be empty, then the id. `what` is the kind: "item".
///
/// errors  data, with file and line: a line with too few fields, a field that is not an id, an id named twice
KgFinding read_kg_list(const KgText& list, std::size_t columns, std::int64_t size, const std::string& what);

}  // namespace lockstep::prep
