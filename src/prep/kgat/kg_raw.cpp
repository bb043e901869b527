/// Parses the three text files of a knowledge-graph data set and reports suspicious input.
#include "lockstep/prep/kgat/kg_raw.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "lockstep/base/consecutive.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::prep {

namespace {

/// A field for use in messages: short and printable.
std::string quoted(std::string_view field) {
  std::string text(field.substr(0, 24));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  return "'" + text + (field.size() > 24 ? "...'" : "'");
}

std::string place(const std::string& file, std::int64_t line) { return join("'", file, "' line ", line); }

/// How often something occurs in a file, and its first line there.
struct Tally {
  std::string file;
  std::int64_t count = 0, line = 0;
  std::string what = {};  ///< what the first line shows

  /// Counts an occurrence; whether it is the first one so far, which the caller then describes.
  bool see(std::int64_t where) {
    if (count++ > 0 && where >= line) return false;
    line = where;
    return true;
  }
  std::string where() const { return place(file, line); }
};

/// The non-blank lines of a text, split into fields.
class Lines {
 public:
  explicit Lines(const KgText& text) : name_(text.name), rest_(text.text), skipped_{text.name} {}
  bool next(std::vector<std::string_view>& fields) {
    const std::int64_t before = line_;
    fields.clear();
    while (fields.empty() && !rest_.empty()) {
      ++line_;
      const auto end = std::min(rest_.find('\n'), rest_.size());
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      for (;;) {
        const auto begin = line.find_first_not_of(" \t\r");
        if (begin == std::string_view::npos) break;
        const auto stop = std::min(line.find_first_of(" \t\r", begin), line.size());
        fields.push_back(line.substr(begin, stop - begin));
        line.remove_prefix(stop);
      }
    }
    if (!fields.empty() && before > 0 && line_ > before + 1 && skipped_.see(before + 1)) skipped_.what = "the first";
    return !fields.empty();
  }
  std::int64_t line() const { return line_; }
  const Tally& skipped() const { return skipped_; }  ///< groups of empty lines amid others
  [[noreturn]] void fail(const auto&... parts) const {
    throw Error(Fault::data, join("reading '", name_, "' line ", line_, ": ", parts...));
  }
  /// Parses an id of this kind ("item"), which must be below `declared` unless that is 0.
  std::int32_t id(std::string_view field, const char* kind, std::int64_t declared) const {
    std::int64_t value = -1;
    const auto [end, failed] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (failed == std::errc::invalid_argument || end != field.data() + field.size())
      fail(quoted(field), " is not a valid ", kind, " id; ids are whole numbers from 0, ",
           field.find(',') != std::string_view::npos ? "separated by blanks"
                                                     : "or --interactions reads tables with text ids");
    if (failed != std::errc{} || value < 0 || value > kLargestId)
      fail(kind, " id ", quoted(field), " is out of range; ids are 0 .. ", kLargestId);
    if (declared > 0 && value >= declared)
      fail(kind, " id ", value, " is out of range; the declared ", declared, " allow 0 .. ", declared - 1);
    return static_cast<std::int32_t>(value);
  }

 private:
  std::string name_;
  std::string_view rest_;
  std::int64_t line_ = 0;
  Tally skipped_;
};

/// The largest id of a kind so far, with its file and line.
struct Largest {
  std::int64_t id = -1, line = 0;
  std::string file;
  void see(std::int64_t value, const std::string& name, std::int64_t where) {
    if (value > id) id = value, line = where, file = name;
  }
  std::string place() const { return file.empty() ? "" : prep::place(file, line); }
};

struct Interaction {
  std::int32_t user, item;
  std::int64_t line;
};

/// The lines of one interaction file.
struct InteractionText {
  std::string name;
  bool table = false;
  std::vector<Interaction> pairs;
  std::vector<std::pair<std::int32_t, std::int64_t>> users;  ///< user and line, in file order
  std::size_t width = 0;                                     ///< fields of every line; 0 when lines differ
  Tally empty;                                               ///< lines amid others

  /// The first line of a user, 0 when there is none. `users` must be sorted.
  std::int64_t line_of(std::int32_t user) const {
    const auto found = std::lower_bound(users.begin(), users.end(), std::pair{user, std::int64_t{0}});
    return found == users.end() || found->first != user ? 0 : found->second;
  }
};

InteractionText parse_interactions(const KgText& text, const KgRules& rules, Largest& user, Largest& item) {
  InteractionText out;
  out.name = text.name;
  out.table = text.table;
  Lines lines(text);
  for (std::vector<std::string_view> fields; lines.next(fields);) {
    out.width = out.users.empty() || fields.size() == out.width ? fields.size() : 0;
    const std::int32_t u = lines.id(fields[0], "user", rules.users);
    user.see(u, text.name, lines.line());
    out.users.emplace_back(u, lines.line());
    for (std::size_t i = 1; i < fields.size(); ++i) {
      out.pairs.push_back({u, lines.id(fields[i], "item", rules.items), lines.line()});
      item.see(out.pairs.back().item, text.name, lines.line());
    }
  }
  out.empty = lines.skipped();
  return out;
}

/// Collects findings and refuses those that the rules refuse.
class Findings {
 public:
  explicit Findings(std::vector<KgFinding>& findings) : findings_(findings) {}
  void warn(const std::string& what, std::int64_t count, const std::string& first) {
    findings_.push_back({what, count, first, true});
  }
  void add(const std::string& what, const Tally& tally, KgPolicy policy = KgPolicy::keep,
           const std::string& option = "") {
    add(what, tally.count, tally.where(), tally.what, policy, option);
  }
  /// `where` is the file and line of the first occurrence ("train.txt line 3"), `first` describes it.
  void add(const std::string& what, std::int64_t count, const std::string& where, const std::string& first,
           KgPolicy policy = KgPolicy::keep, const std::string& option = "") {
    if (count == 0) return;
    if (policy == KgPolicy::refuse)
      throw Error(Fault::data,
                  join("reading ", where.empty() ? "the ids" : where, ": ", first, " (", what.substr(0, what.find(',')),
                       ": ", count, "); mend the file, or choose another --", option));
    findings_.push_back({what, count, where.empty() ? first : where + ": " + first, false});
  }

 private:
  std::vector<KgFinding>& findings_;
};

/// Whether the lines look like a table of user, item and rating or time, not like lists of items; "" if not.
std::string doubt_about(const InteractionText& text) {
  if (text.width < 3) return "";
  std::set<std::int32_t> users;
  for (const auto& [user, line] : text.users) users.insert(user);
  if (2 * users.size() > text.users.size()) return "";
  return join("lines that all have ", text.width, " fields, for ", users.size(), " users: if '", text.name,
              "' is not of lists 'user item item ...' but a table such as 'user item rating', --interactions reads it");
}

/// Sorts interactions, removes repeated pairs and merges the lines of a user.
void unite(InteractionText& text, const KgRules& rules, Findings& findings) {
  std::stable_sort(text.users.begin(), text.users.end());
  Tally again{text.name}, repeated{text.name};
  for (std::size_t i = 1; i < text.users.size(); ++i)
    if (text.users[i].first == text.users[i - 1].first && again.see(text.users[i].second))
      again.what = join("user ", text.users[i].first, " already has line ", text.users[i - 1].second);
  if (!text.table) findings.add("further lines of a user, merged", again, rules.duplicates, "duplicates");
  if (const std::string doubt = doubt_about(text); !doubt.empty())
    findings.warn(doubt, std::ssize(text.users), again.where());
  if (!text.table) findings.add("empty lines amid others, skipped", text.empty);

  std::sort(text.pairs.begin(), text.pairs.end(), [](const Interaction& a, const Interaction& b) {
    return std::tie(a.user, a.item, a.line) < std::tie(b.user, b.item, b.line);
  });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < text.pairs.size(); ++i) {
    if (i > 0 && text.pairs[i].user == text.pairs[kept - 1].user && text.pairs[i].item == text.pairs[kept - 1].item) {
      if (repeated.see(text.pairs[i].line))
        repeated.what = join("user ", text.pairs[i].user, " already has item ", text.pairs[i].item);
      continue;
    }
    text.pairs[kept++] = text.pairs[i];
  }
  text.pairs.resize(kept);
  findings.add("repeated interactions, counted once", repeated, rules.duplicates, "duplicates");
}

/// Finds test items that are also train items.
void find_overlap(const InteractionText& train, InteractionText& test, const KgRules& rules, Findings& findings) {
  const auto in_train = [&](const Interaction& pair) {
    return std::binary_search(
        train.pairs.begin(), train.pairs.end(), pair,
        [](const Interaction& a, const Interaction& b) { return std::tie(a.user, a.item) < std::tie(b.user, b.item); });
  };
  Tally both{test.name};
  for (const auto& pair : test.pairs)
    if (in_train(pair) && both.see(pair.line))
      both.what = join("test item ", pair.item, " of user ", pair.user, " is also a train item");
  findings.add(rules.overlap == KgPolicy::drop ? "test items that are train items, dropped"
                                               : "test items that are train items, kept (they cannot be hit)",
               both, rules.overlap, "overlap");
  if (rules.overlap == KgPolicy::drop) std::erase_if(test.pairs, in_train);
}

UserItems compress(const InteractionText& text, std::int64_t users) {
  UserItems out;
  std::vector<std::int64_t> count(at(users), 0);
  out.item.reserve(text.pairs.size());
  for (const auto& pair : text.pairs) ++count[at(pair.user)], out.item.push_back(pair.item);
  out.indptr = offsets_of(count);
  return out;
}

struct TripleText {
  std::string name;
  std::vector<Triple> triples;
  std::vector<std::int64_t> lines;
};

TripleText parse_triples(const KgText& text, const KgRules& rules, Largest& entity, Largest& relation) {
  TripleText out{text.name, {}, {}};
  Lines lines(text);
  for (std::vector<std::string_view> fields; lines.next(fields);) {
    if (fields.size() != 3)
      lines.fail("expected head, relation and tail, found ", fields.size(), fields.size() == 1 ? " field" : " fields");
    const Triple triple{lines.id(fields[0], "head", rules.entities), lines.id(fields[1], "relation", rules.relations),
                        lines.id(fields[2], "tail", rules.entities)};
    entity.see(std::max(triple.head, triple.tail), text.name, lines.line());
    relation.see(triple.relation, text.name, lines.line());
    out.triples.push_back(triple);
    out.lines.push_back(lines.line());
  }
  return out;
}

std::string text_of(const Triple& t) { return join(t.head, " ", t.relation, " ", t.tail); }

/// Removes repeated triples, finds several relations between two entities (in either direction) and, depending on the
/// rules, drops all but the first.
void thin_triples(TripleText& text, const KgRules& rules, Findings& findings) {
  const auto ends = [&](std::int64_t i) {
    const auto& t = text.triples[at(i)];
    return std::pair{std::min(t.head, t.tail), std::max(t.head, t.tail)};
  };
  const auto order = indices_by<std::int64_t>(std::ssize(text.triples), [&](std::int64_t i) {
    return std::tuple(ends(i), text.triples[at(i)].head, text.triples[at(i)].relation);
  });
  std::vector<std::uint8_t> keep(order.size(), 1);
  Tally repeated{text.name}, parallel{text.name}, loops{text.name};
  const auto line = [&](std::int64_t i) { return text.lines[at(i)]; };
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    for (end = begin + 1; end < order.size() && ends(order[end]) == ends(order[begin]);) ++end;
    const std::int64_t first = *std::min_element(order.begin() + begin, order.begin() + end);
    std::int64_t original = -1;
    for (std::size_t k = begin; k < end; ++k) {
      const std::int64_t i = order[k];
      if (original >= 0 && text.triples[at(original)] == text.triples[at(i)]) {
        keep[at(i)] = 0;
        if (repeated.see(line(i)))
          repeated.what = join("triple ", text_of(text.triples[at(i)]), " is already in line ", line(original));
        continue;
      }
      original = i;
      if (text.triples[at(i)].head == text.triples[at(i)].tail && loops.see(line(i)))
        loops.what = "triple " + text_of(text.triples[at(i)]);
      if (i == first) continue;
      if (rules.parallel == KgPolicy::drop) keep[at(i)] = 0;
      if (parallel.see(line(i)))
        parallel.what = join("triple ", text_of(text.triples[at(i)]), " connects the same entities as ",
                             text_of(text.triples[at(first)]), " in line ", line(first));
    }
  }
  findings.add("repeated triples, counted once", repeated, rules.duplicates, "duplicates");
  findings.add(rules.parallel == KgPolicy::drop ? "parallel triples, dropped" : "parallel triples, kept", parallel,
               rules.parallel, "parallel");
  findings.add("triples from an entity to itself, kept", loops);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i] == 0) continue;
    text.triples[kept] = text.triples[i];
    text.lines[kept++] = text.lines[i];
  }
  text.triples.resize(kept);
  text.lines.resize(kept);
}

/// Reports a test file without interactions, and test items that no user has in training.
void find_cold(const InteractionText& train, const InteractionText& test, std::int64_t items, Findings& findings) {
  if (test.pairs.empty())
    findings.add("files without test interactions; there is nothing to evaluate", 1, "", "'" + test.name + "'");
  std::vector<std::uint8_t> known(at(items), 0);
  for (const auto& pair : train.pairs) known[at(pair.item)] = 1;
  Tally cold{test.name};
  for (const auto& pair : test.pairs)
    if (std::exchange(known[at(pair.item)], 1) == 0 && cold.see(pair.line))
      cold.what = join("item ", pair.item, " of user ", pair.user, " is in no user's train items");
  findings.add("test items without train interactions, kept", cold);
}

/// Counts the ids below `size` that `seen` does not mark.
void find_missing(const std::vector<std::uint8_t>& seen, const std::string& what, const std::string& option,
                  KgPolicy policy, const Largest& largest, Findings& findings) {
  const auto first = std::find(seen.begin(), seen.end(), 0);
  const std::int64_t count = std::count(first, seen.end(), 0);
  findings.add(what, count, largest.place(),
               join("ids go up to ", std::ssize(seen) - 1, ", the first that is missing is ", first - seen.begin()),
               policy, option);
}

}  // namespace

KgSet read_kg_text(const KgText& train_text, const KgText& test_text, const std::optional<KgText>& kg_text,
                   const KgRules& rules, std::vector<KgFinding>& found) {
  Findings findings(found);
  Largest user, item, entity, relation;
  InteractionText train = parse_interactions(train_text, rules, user, item);
  InteractionText test = parse_interactions(test_text, rules, user, item);
  TripleText kg;
  if (kg_text) kg = parse_triples(*kg_text, rules, entity, relation);
  require_data(!train.pairs.empty(), "reading '", train.name, "': no user has an item");
  require_data(!kg_text || !kg.triples.empty(), "reading '", kg.name,
               "': no triples; --no-kg prepares interactions alone");

  KgSet set;
  KgSizes& sizes = set.sizes;
  sizes.users = std::max(rules.users, user.id + 1);
  sizes.items = std::max(rules.items, item.id + 1);
  sizes.entities = std::max({rules.entities, sizes.items, entity.id + 1});
  sizes.kg_relations = std::max(rules.relations, relation.id + 1);
  require_usage(rules.entities == 0 || rules.entities >= sizes.items, "option entities = ", rules.entities, ": the ",
                sizes.items, " items are entities too");
  require_usage(
      rules.users + std::max(rules.items, rules.entities) <= rules.max_nodes && rules.relations <= rules.max_nodes,
      "options users, items, entities, relations: more than max-nodes = ", rules.max_nodes, "; raise it");
  if (sizes.nodes() > rules.max_nodes) {
    const Largest& blame = user.id + 1 >= sizes.entities ? user : (entity.id >= item.id ? entity : item);
    throw Error(Fault::data,
                join("reading ", blame.place(), ": id ", blame.id, " makes ", sizes.nodes(), " nodes, more than ",
                     rules.max_nodes, "; mend the id, or raise --max-nodes",
                     doubt_about(train).empty() ? "" : join(" (", train.users.size(), " ", doubt_about(train), ")")));
  }
  require_data(sizes.kg_relations <= rules.max_nodes, "reading ", relation.place(), ": relation id ", relation.id,
               " makes ", sizes.kg_relations, " relations; mend the id, or raise --max-nodes");

  unite(train, rules, findings);
  unite(test, rules, findings);
  find_overlap(train, test, rules, findings);
  find_cold(train, test, sizes.items, findings);
  thin_triples(kg, rules, findings);
  set.train = compress(train, sizes.users);
  set.test = compress(test, sizes.users);
  set.triples = std::move(kg.triples);
  sizes.train = std::ssize(set.train.item);
  sizes.test = std::ssize(set.test.item);
  sizes.kg_triples = std::ssize(set.triples);
  sizes.require_indexable();

  std::vector<std::uint8_t> users(at(sizes.users), 0), items(at(sizes.items), 0), entities(at(sizes.entities), 0),
      relations(at(sizes.kg_relations), 0);
  for (const InteractionText* text : {&train, &test}) {
    for (const auto& [u, line] : text->users) users[at(u)] = 1;
    for (const auto& pair : text->pairs) items[at(pair.item)] = entities[at(pair.item)] = 1;
  }
  for (const auto& t : set.triples) entities[at(t.head)] = entities[at(t.tail)] = relations[at(t.relation)] = 1;
  // Ids below the largest item id are items, even those that occur only as entities: one wrong id makes many items.
  Tally unused, empty;  // of ids, not of lines
  for (std::int64_t i = 0; i < sizes.items; ++i) {
    if (items[at(i)] == 0 && entities[at(i)] != 0) unused.see(i);
    items[at(i)] |= entities[at(i)];
  }
  findings.add("items without interactions that are entities of the graph, kept", unused.count, item.place(),
               join("items go up to ", sizes.items - 1, ", the first without interactions is ", unused.line));

  for (std::int64_t u = 0; u < sizes.users; ++u)
    if (set.train.of(u).empty()) empty.see(u);
  const auto first_empty = static_cast<std::int32_t>(empty.line);
  const std::int64_t in_train = train.line_of(first_empty), in_test = test.line_of(first_empty);
  findings.add("users without train items, kept", empty.count,
               in_train > 0  ? place(train.name, in_train)
               : in_test > 0 ? place(test.name, in_test)
                             : user.place(),
               join("user ", first_empty,
                    in_train > 0  ? " has no train items"
                    : in_test > 0 ? " has test items but no train items"
                                  : join(" has no line although ids go up to ", sizes.users - 1)),
               rules.empty_users, "empty-users");
  find_missing(users, "user ids that never occur", "missing-ids", rules.missing_ids, user, findings);
  find_missing(items, "item ids that never occur", "missing-ids", rules.missing_ids, item, findings);
  find_missing(entities, "entity ids that never occur", "missing-ids", rules.missing_ids,
               entity.id >= item.id ? entity : item, findings);
  if (kg_text) {
    std::vector<std::uint8_t> joined(at(sizes.items), 0);
    for (const auto& t : set.triples)
      for (const std::int32_t end : {t.head, t.tail})
        if (end < sizes.items) joined[at(end)] = 1;
    const auto first = std::find(joined.begin(), joined.end(), 0);
    findings.add("items without triples, kept", std::count(first, joined.end(), 0), "'" + kg.name + "'",
                 join("the first is item ", first - joined.begin()));
    find_missing(relations, "relations without triples", "empty-relations", rules.empty_relations, relation, findings);
  }
  return set;
}

KgFinding read_kg_list(const KgText& list, std::size_t columns, std::int64_t size, const std::string& what) {
  Lines lines(list);
  std::vector<std::string_view> fields;
  lines.next(fields);  // the header
  std::vector<std::uint8_t> named(at(size), 0);
  std::int64_t count = 0;
  Tally beyond;
  while (lines.next(fields)) {
    // The first name may be empty: amazon-book has one such line.
    if (fields.size() + 1 < columns) lines.fail("expected ", columns, " fields, found ", fields.size());
    const std::int64_t id = lines.id(fields[fields.size() - (columns - 1)], what.c_str(), 0);
    if (id >= size) {
      beyond.see(lines.line());
      continue;
    }
    if (named[at(id)]++ != 0) lines.fail(what, " ", id, " is named twice");
    ++count;
  }
  const auto first = std::find(named.begin(), named.end(), 0);
  return {join(what, " ids that the list names, of ", size), count,
          join("'", list.name, "'",
               first == named.end() ? std::string() : join(", the first without a name is ", first - named.begin()),
               beyond.count == 0
                   ? std::string()
                   : join(", ", beyond.count, " names of ids that never occur, the first in line ", beyond.line))};
}

}  // namespace lockstep::prep
