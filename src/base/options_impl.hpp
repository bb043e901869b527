#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/options.hpp"

namespace lockstep {

/// One row of the table. Texts are canonical: canonical(text()) == text().
struct Option::Spec {
  std::string key;
  std::string kind;  ///< "bool", "integer", "number", "text", "list"
  std::string help, unit_name, value, initial;
  Check rule;
  std::vector<std::string> choices, aliases;
  std::map<std::string, std::string> synonyms;  ///< value_alias()
  std::string other;                            ///< instead_of()
  std::optional<std::string> open;              ///< settled_by_first_start()
  bool needed = false, changeable = false, decides = false, expert = false;
  std::string origin = "default";
  /// Reads a text of this type and writes it back. Throws Error with the reason if the text is invalid.
  std::function<std::string(const std::string&)> canonical;
  std::function<void(const std::string&)> store;  ///< reads a text into the target
  std::function<void()> reset;                    ///< restores the default
  std::function<std::string()> text;              ///< writes the target as text

  bool configuration() const { return key.find('.') != std::string::npos; }
  /// The part of the key before the dot; "" without one.
  std::string section() const { return configuration() ? key.substr(0, key.find('.')) : ""; }
  bool flag() const { return kind == "bool"; }
  bool list() const { return kind == "list"; }
  /// The placeholder after `--key` in the help: FILE, NUMBER, adam|sgd.
  std::string placeholder() const;
  /// The bracketed end of the help text: "> 0; default 0.001". May be empty.
  std::string remark() const;
  /// `option optim.lr = -0.001 (FILE:3): ` + what
  [[noreturn]] void reject(const std::string& value, const std::string& origin, const std::string& what) const;
  void set(const std::string& text, const std::string& from);
  /// The value that a word of value_alias() stands for, or the text itself.
  const std::string& meant(const std::string& text) const {
    const auto synonym = synonyms.find(text);
    return synonym == synonyms.end() ? text : synonym->second;
  }
};

struct Options::Impl {
  struct Section {
    std::string prefix, title, description;
  };
  struct Positional {
    std::string name, help;
    std::vector<std::string>* target = nullptr;
    std::size_t least = 0, most = 0;
  };
  struct Example {
    std::string command, what;
  };

  std::string program, summary, description;
  std::vector<Section> sections;
  std::vector<std::vector<std::string>> lists;  ///< one per list_only() call
  std::vector<std::unique_ptr<Option>> options;
  std::map<std::string, Option::Spec*> names;                               ///< folded key or alias -> row
  std::map<std::string, std::pair<Option::Spec*, std::string>> shorthands;  ///< folded name -> row and value
  struct Word {
    std::vector<std::string> names;
    bool takes_value = false;
    std::string help;
    std::function<Reply(const std::string&)> reply;
    std::string spelling() const;  ///< `--num_workers, --num-workers VALUE`
  };
  std::vector<std::unique_ptr<Word>> words;  ///< of other programs
  std::vector<Positional> positionals;
  std::vector<Example> examples;
  std::function<std::string(const std::string&)> explain;                            ///< explain_unknown()
  std::function<void(std::vector<IniEntry>&, const std::string& source)> translate;  ///< translate_entries()

  Option::Spec& at(const std::string& key) const;
  Option::Spec* find(const std::string& name) const;
  void name_it(const std::string& name, Option::Spec& spec);
  bool has_configuration() const;
  /// Whether help, docs and man page show this row: see list_only().
  bool listed(const Option::Spec& row) const;
  /// Sections in order with their listed rows, or with all rows if `unlisted`. The first section has an empty prefix
  /// and holds the command-line options. A section without a section() call has its prefix as title.
  std::vector<std::pair<Section, std::vector<const Option::Spec*>>> grouped(bool unlisted = false) const;
  std::string suggestion(const std::string& name, const char* dashes) const;
  std::string usage_line() const;
  void apply(const std::vector<IniEntry>& entries, const std::string& source);
  const Word* find_word(const std::string& name) const;
  std::vector<IniEntry> entries_of(std::string_view text, const std::string& source) const;
  /// Call it after one place, such as a file, has set rows: applies instead_of(). `set` tells whether it has set a row.
  void choose_alternatives(const std::function<bool(const Option::Spec&)>& set);
  /// Whether the row has an alternative that is in effect.
  bool replaced(const Option::Spec& row) const;
};

/// Maps `-` and `_` to `.`, so that all three separators compare equal. Letters keep their case.
std::string fold(std::string name);

/// The value itself, or true and false for Python's True and False.
inline std::string truth(const std::string& value) {
  return value == "True" ? "true" : value == "False" ? "false" : value;
}

inline bool is_yaml(const std::string& path) { return path.ends_with(".yaml") || path.ends_with(".yml"); }

}  // namespace lockstep
