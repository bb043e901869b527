/// Turns tables with ids of any kind into the text format of knowledge graphs.
#include "prep/kgat/kg_tables.hpp"

#include <set>
#include <unordered_map>

#include "lockstep/base/csv.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text.hpp"
#include "lockstep/io/interaction_lines.hpp"
#include "lockstep/io/line_reader.hpp"
#include "lockstep/prep/distinct_texts.hpp"

namespace lockstep::prep {

namespace {
/// Whether the first line of a table names its columns.
bool is_header(const std::vector<std::string>& fields) {
  static const std::set<std::vector<std::string>> kHeaders = {{"head", "relation", "tail"},
                                                              {"head_id", "relation_id", "tail_id"},
                                                              {"subject", "predicate", "object"},
                                                              {"h", "r", "t"}};
  return fields[0].ends_with(":token") || kHeaders.contains(fields);
}

/// Calls row(line, fields) for each line of a table of `width` columns.
void each_row(const std::filesystem::path& path, std::size_t width, const char* form, const auto& row) {
  LineReader lines(path);
  std::vector<std::string> fields;
  std::optional<Separator> separator;  // that of the first line: later ids may contain others
  std::int64_t number = 0;
  for (std::string line; lines.next(line);) {
    ++number;
    if (trim(line).empty()) continue;
    const bool first = !separator;
    if (first) separator = separator_of(line);
    const auto fail = [&](const auto&... parts) {
      throw Error(Fault::data, join("reading '", path.string(), "' line ", number, ": ", parts...));
    };
    if (!split_line(line, *separator, fields)) fail(kCsvDefect);
    for (auto& field : fields) field = trim(field);
    if (fields.size() != width)
      fail("expected ", form, ", found ", fields.size(), fields.size() == 1 ? " field" : " fields", " separated by ",
           name(*separator));
    if (!first || !is_header(fields)) row(number, fields);
  }
}

/// Puts a line at its number, so that messages about the text name the line of the file.
void put(std::string& text, std::int64_t& at, std::int64_t line, const std::string& content) {
  for (++at; at < line; ++at) text += '\n';
  text += content + '\n';
}
}  // namespace

KgTables read_kg_tables(const std::filesystem::path& interactions, const InteractionOptions& options,
                        const std::optional<std::filesystem::path>& kg,
                        const std::optional<std::filesystem::path>& link, Summary& summary) {
  KgTables out{{interactions.string(), "", true}, {}, {}};
  DistinctTexts<> users, items, entities, relations;
  InteractionFile file(interactions, options);
  std::int64_t at = 0;
  while (file.next())
    put(out.interactions.text, at, file.line(), join(users.intern(file.user()), " ", items.intern(file.item())));
  summary.line("interactions", interactions.filename().string(), ": ", file.reading());
  for (std::size_t c = 0; c < options.where.size(); ++c)
    summary.line("left out", file.counts().left_out[c], " lines by --where '", options.where[c], "'");

  std::unordered_map<std::string, std::string> entity_of;
  std::int64_t linked = 0, unknown = 0, shared = 0;
  if (link) {
    std::unordered_map<std::string, std::string> item_of;
    each_row(*link, 2, "item and entity", [&](std::int64_t, const std::vector<std::string>& fields) {
      if (!items.knows(fields[0])) {
        ++unknown;
      } else if (const auto [entry, is_new] = item_of.emplace(fields[1], fields[0]); !is_new) {
        shared += entry->second != fields[0];
      } else {
        linked += entity_of.emplace(fields[0], fields[1]).second;
      }
    });
    summary.line("links", link->filename().string(), ": ", linked, " of ", items.size(), " items are an entity; ",
                 unknown, " lines are of other items");
    if (shared > 0) summary.note(shared, " links to the entity of an earlier item are ignored");
  }
  for (const std::string& item : items.ids()) {
    const auto found = entity_of.find(item);
    // An item without a link must not meet an entity that happens to have its id.
    entities.intern(found != entity_of.end() ? found->second : link ? "item:" + item : item);
  }
  if (kg) {
    at = 0;
    KgText& text = out.kg.emplace(KgText{kg->string(), "", true});
    each_row(*kg, 3, "head, relation and tail", [&](std::int64_t line, const std::vector<std::string>& fields) {
      const std::int32_t head = entities.intern(fields[0]), relation = relations.intern(fields[1]),
                         tail = entities.intern(fields[2]);
      put(text.text, at, line, join(head, " ", relation, " ", tail));
    });
    summary.line("triples", kg->filename().string(), ": ", entities.size() - items.size(),
                 " entities besides the items, ", relations.size(), " relations");
  }
  out.names = {users.ids(), items.ids(), entities.ids(), relations.ids()};
  return out;
}

}  // namespace lockstep::prep
