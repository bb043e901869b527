#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/io/interaction_file.hpp"
#include "lockstep/prep/kgat/kg_raw.hpp"
#include "lockstep/prep/summary.hpp"

namespace lockstep::prep {

/// The raw ids of users, items, entities and relations by number. An item is the entity of the same number, whose id
/// there is that of the linked entity.
struct KgNames {
  std::vector<std::string> users, items, entities, relations;
};

/// Tables with ids of any kind, as the texts that read_kg_text() takes: line by line, with numbers instead of ids.
struct KgTables {
  KgText interactions;
  std::optional<KgText> kg;
  KgNames names;
};

/// Reads RecBole's atomic files as they are, or tables like them. Items get their numbers in the order of the
/// interactions, other entities in that of the triples.
///
/// interactions  any file that InteractionFile reads; times are ignored
/// kg            head, relation, tail; a first line whose names end in `:token` is a header
/// link          item, entity; without it an item is the entity of the same id
/// errors        data, with file and line: as InteractionFile; a line of another width
KgTables read_kg_tables(const std::filesystem::path& interactions, const InteractionOptions& options,
                        const std::optional<std::filesystem::path>& kg,
                        const std::optional<std::filesystem::path>& link, Summary& summary);

}  // namespace lockstep::prep
