#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/prep/kg_set.hpp"

namespace lockstep::prep {

/// What to do with input that is legal and yet worth a look.
enum class KgPolicy : std::uint8_t {
  keep,    ///< report it and go on
  drop,    ///< report it and leave the surplus out
  refuse,  ///< an error that names file and line
};

struct KgRules {
  KgPolicy duplicates =
      KgPolicy::drop;  ///< an interaction or triple that is said twice counts once (keep is not possible)
  KgPolicy parallel = KgPolicy::keep;  ///< several relations between two entities; drop keeps the first in the file
  KgPolicy overlap = KgPolicy::keep;  ///< test items that are also train items of the user; drop takes them out of test
  KgPolicy empty_users = KgPolicy::keep;      ///< users without train items
  KgPolicy empty_relations = KgPolicy::keep;  ///< relation ids below the largest that no triple has
  KgPolicy missing_ids = KgPolicy::keep;      ///< user, item and entity ids below the largest that never occur
  std::int64_t users = 0, items = 0, entities = 0,
               relations = 0;            ///< sizes as the user declares them; 0: from the largest id
  std::int64_t max_nodes = 100'000'000;  ///< a stray id must not cost all memory
};

/// A text and the name that messages give it.
struct KgText {
  std::string name, text;
};

/// Something that was met and reported.
struct KgFinding {
  std::string what;
  std::int64_t count = 0;
  std::string first;  ///< where, and what it is
};

/// Parses train, test and (unless there is none) the knowledge graph; fills sizes, train, test and triples of a set.
/// The graph is not built yet. Fields are separated by blanks or tabs; blank lines are skipped; lines of one user are
/// united.
///
/// errors  data, with file and line: something that is no id, an id out of range, a line of the knowledge graph
///         without exactly three fields, what `rules` refuse; no interactions at all
KgSet read_kg_text(const KgText& train, const KgText& test, const std::optional<KgText>& kg, const KgRules& rules,
                   std::vector<KgFinding>& findings);

/// Checks a list file (a header line, then lines of `columns` fields, split from the right: the id is the second, the
/// first may hold blanks or be empty) against the ids of a set and says how many it names. `what` is their kind: "item".
///
/// errors  data, with file and line: a line with too few fields, something that is no id, an id named twice
KgFinding read_kg_list(const KgText& list, std::size_t columns, std::int64_t size, const std::string& what);

}  // namespace lockstep::prep
