#include <algorithm>

#include "base/options_impl.hpp"
#include "lockstep/base/text.hpp"

namespace lockstep {

// Texts generated from the table: help, config.ini, Markdown, manual page.

namespace {

std::string with_unit(const std::string& text, const std::string& unit) {
  return unit.empty() || text.empty() ? text : text + " " + unit;
}

std::string sentence(const std::string& text) { return text.empty() || text.ends_with('.') ? text : text + "."; }

/// `-j`, `--weight-decay`, `--training.learning_rate`.
std::string dashed(std::string alias) {
  if (alias.find('.') == std::string::npos) std::ranges::replace(alias, '_', '-');
  return (alias.size() == 1 ? "-" : "--") + alias;
}

/// `--optim.lr, --lr NUMBER`, `--[no-]json`.
std::string spelling(const Option::Spec& row) {
  std::string text = row.flag() ? "--[no-]" + row.key : "--" + row.key;
  for (const auto& alias : row.aliases) text += ", " + dashed(alias);
  if (!row.flag()) text += " " + row.placeholder();
  return text;
}

std::string ini_text(const std::string& value) {
  const bool plain = value.find_first_of("#;\"\n\r\\") == std::string::npos && trim(value) == value;
  if (plain) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return quoted + '"';
}

std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

/// A shell command or usage line as lines of at most kMarkdownColumns, broken before options.
std::string command_lines(const std::string& command) {
  std::string out, line, group;
  const auto take = [&] {
    if (!line.empty() && line.size() + group.size() + 2 > kMarkdownColumns) {  // 2: " \" at the end
      out += line + " \\\n ";
      line.clear();
    }
    line += (line.empty() && out.empty() ? "" : " ") + group;
    group.clear();
  };
  for (const auto& word : split(command, ' ')) {
    if (!group.empty() && (word.starts_with("--") || word.starts_with('['))) take();
    group += (group.empty() ? "" : " ") + word;
  }
  take();
  return out + line;
}

/// Escapes a text for troff.
std::string troff(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool at_start = i == 0 || text[i - 1] == '\n';
    if (at_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string Option::Spec::placeholder() const {
  if (!value.empty()) return value;
  if (!choices.empty()) return listed(choices, "|");
  if (unit_name == "s" || unit_name == "min" || unit_name == "h") return "TIME";
  if (unit_name == "bytes") return "SIZE";
  if (kind == "integer") return "N";
  if (kind == "number") return "NUMBER";
  if (kind == "list") return "A,B,...";
  if (kind == "bool") return "true|false";
  return "TEXT";
}

std::string Option::Spec::remark() const {
  std::vector<std::string> parts;
  if (!rule.rule.empty()) parts.push_back(rule.rule);
  if (needed)
    parts.push_back("required");
  else if (!initial.empty())
    parts.push_back("default " + with_unit(initial, unit_name));
  else if (!unit_name.empty())
    parts.push_back(unit_name);
  return listed(parts, "; ");
}

std::string Options::Impl::Word::spelling() const {
  return "--" + lockstep::listed(names, ", --") + (takes_value ? " VALUE" : "");
}

std::vector<std::pair<std::string, std::string>> Options::spellings() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& option : impl_->options)
    for (const auto& alias : option->spec_->aliases) all.emplace_back(dashed(alias), option->spec_->key);
  for (const auto& word : impl_->words) all.emplace_back(word->spelling(), word->help);
  return all;
}

std::string Options::Impl::usage_line() const {
  std::string line = program;
  if (has_configuration()) line += " [--config FILE] [--set KEY=VALUE ...]";
  bool optional = false;
  for (const auto& option : options) {
    const Option::Spec& row = *option->spec_;
    if (row.needed)
      line += " --" + row.key + " " + row.placeholder();
    else
      optional = true;
  }
  if (optional) line += " [OPTION ...]";
  for (const auto& positional : positionals) {
    const std::string name = positional.name + (positional.most > 1 ? " ..." : "");
    line += positional.least > 0 ? " " + name : " [" + name + "]";
  }
  return line;
}

std::string Options::help(int columns) const {
  const Impl& table = *impl_;
  const auto width = static_cast<std::size_t>(columns);
  constexpr std::size_t kIndent = 34;
  std::string out;
  out += table.program + (table.summary.empty() ? "" : ": " + table.summary) + "\n\n";
  out += "usage: " + wrapped(table.usage_line(), 7, width) + "\n";
  if (!table.description.empty()) out += "\n" + wrapped(table.description, 0, width) + "\n";
  const auto entry = [&](const std::string& left, const std::string& right) {
    std::string line = "  " + left;
    line += line.size() + 2 > kIndent ? "\n" + std::string(kIndent, ' ') : std::string(kIndent - line.size(), ' ');
    out += line + wrapped(right, kIndent, width) + "\n";
  };
  if (!table.positionals.empty()) {
    out += "\nArguments\n";
    for (const auto& positional : table.positionals) entry(positional.name, positional.help);
  }
  bool first = true;
  const auto common = [&] {
    if (table.has_configuration()) {
      entry("--config, -c FILE",
            "INI file with [section] and key = value; may be given several times, later files win");
      entry("--set KEY=VALUE", "set one key of the configuration; wins over files, like --KEY VALUE");
    }
    entry("--help, -h", "this text");
    first = false;
  };
  for (const auto& [section, rows] : table.grouped()) {
    if (first && !section.prefix.empty()) out += "\nOptions\n", common();
    out += "\n" + section.title + "\n";
    if (!section.description.empty()) out += "  " + wrapped(section.description, 2, width) + "\n";
    for (const Option::Spec* row : rows) {
      const std::string remark = row->remark();
      entry(spelling(*row), row->help + (remark.empty() ? "" : " [" + remark + "]"));
    }
    if (first) common();
  }
  if (first) out += "\nOptions\n", common();
  if (!table.words.empty() && table.lists.empty()) {  // else they may set keys that are not listed
    out += "\nWords of other programs\n";
    for (const auto& word : table.words) entry(word->spelling(), word->help);
  }
  if (!table.examples.empty()) {
    out += table.examples.size() == 1 ? "\nExample\n" : "\nExamples\n";
    for (const auto& example : table.examples)
      out += "  " + example.command + "\n      " + wrapped(example.what, 6, width) + "\n";
  }
  return out;
}

std::string ini_line(const std::string& key, const std::string& value) { return key + " = " + ini_text(value) + "\n"; }

std::string Options::ini() const {
  std::string out = "# " + impl_->program + ": resolved configuration\n";
  // Includes rows that list_only() leaves out: the resolved text must restore every value.
  for (const auto& [section, rows] : impl_->grouped(true)) {
    const std::string& prefix = section.prefix;
    if (prefix.empty()) continue;
    const bool titled = std::ranges::any_of(impl_->sections, [&](const auto& s) { return s.prefix == prefix; });
    out += "\n[" + prefix + "]" + (titled ? "  # " + section.title : "") + "\n";
    for (const Option::Spec* row : rows) {
      if (impl_->replaced(*row)) continue;
      const std::string name = row->key.substr(prefix.size() + 1);
      const std::string remark = row->remark();
      std::string comment = row->help;
      std::replace(comment.begin(), comment.end(), '\n', ' ');
      if (!row->choices.empty()) comment += " (" + row->placeholder() + ")";
      out += "# " + comment + (remark.empty() ? "" : " [" + remark + "]") + "\n";
      out += ini_line(name, row->text());
    }
  }
  return out;
}

std::string Options::markdown(Part part) const {
  const Impl& table = *impl_;
  std::string out;
  if (part != Part::configuration) {
    out += "## `" + table.program + "`\n\n" + sentence(table.summary) + "\n\n```\n" +
           command_lines(table.usage_line()) + "\n```\n";
    if (!table.description.empty()) out += "\n" + wrapped(table.description, 0, kMarkdownColumns) + "\n";
    for (const auto& positional : table.positionals)
      out += "\n" + wrapped("`" + positional.name + "`: " + markdown_text(positional.help), 0, kMarkdownColumns) + "\n";
  }
  std::string sections;
  const auto whole = [&](const std::vector<const Option::Spec*>& rows) {
    return std::ssize(rows) == std::ranges::count_if(table.options, [&](const auto& o) {
             return o->spec_->section() == rows[0]->section();
           });
  };
  for (const auto& [section, rows] : table.grouped()) {
    if (part == Part::configuration && section.prefix.empty()) continue;
    if (part == Part::command && !section.prefix.empty()) {
      const auto add = [&](const std::string& key) { sections += (sections.empty() ? "`" : ", `") + key + "`"; };
      if (whole(rows))
        add(section.prefix + ".*");
      else
        for (const Option::Spec* row : rows) add(row->key);
      continue;
    }
    out += "\n" + std::string(section.prefix.empty() ? "" : "### " + section.title + "\n\n");
    if (!section.description.empty()) out += wrapped(section.description, 0, kMarkdownColumns) + "\n\n";
    const bool resumes = std::ranges::any_of(rows, [](const Option::Spec* row) { return row->changeable; });
    out += resumes ? "| option | value | default | on resume | meaning |\n| --- | --- | --- | --- | --- |\n"
                   : "| option | value | default | meaning |\n| --- | --- | --- | --- |\n";
    for (const Option::Spec* row : rows) {
      std::string name = "`" + std::string(section.prefix.empty() ? "--" : "") + row->key + "`";
      for (const auto& alias : row->aliases)
        name += alias.find('.') == std::string::npos ? ", `" + dashed(alias) + "`" : ", `" + alias + "`";
      std::string value;
      if (row->choices.empty()) {
        value = row->kind + (row->rule.rule.empty() ? "" : ", " + row->rule.rule);
        if (!row->unit_name.empty()) value += ", " + row->unit_name;
      } else {
        for (const auto& choice : row->choices) value += (value.empty() ? "`" : ", `") + choice + "`";
      }
      const std::string initial = row->needed ? "required" : row->initial.empty() ? "" : "`" + row->initial + "`";
      const auto cell = [](const std::string& text) {
        std::string safe;
        for (const char c : text) safe += c == '|' ? std::string("\\|") : std::string(1, c);
        return safe;
      };
      if (row->expert) name += " (expert)";
      const std::string resume = resumes ? std::string(row->changeable ? "may change" : "") + " | " : "";
      out += "| " + cell(name) + " | " + cell(value) + " | " + cell(initial) + " | " + resume +
             markdown_text(row->help) + " |\n";
    }
  }
  if (!sections.empty())
    out += "\n" +
           wrapped("Takes `--config FILE`, `--set KEY=VALUE` and the configuration keys " + sections + ".", 0,
                   kMarkdownColumns) +
           "\n";
  if (part != Part::configuration && !table.examples.empty()) {
    out += "\n```sh\n";
    for (const auto& example : table.examples)
      out += "# " + example.what + "\n" + command_lines(example.command) + "\n";
    out += "```\n";
  }
  return out;
}

std::string Options::man() const {
  const Impl& table = *impl_;
  std::string page = table.program, upper;
  std::replace(page.begin(), page.end(), ' ', '-');
  std::transform(page.begin(), page.end(), std::back_inserter(upper), [](unsigned char c) { return std::toupper(c); });
  std::string out = ".TH \"" + upper + "\" 1 \"\" \"lockstep " LOCKSTEP_VERSION "\" \"Lockstep\"\n";
  out += ".SH NAME\n" + troff(page) + " \\- " + troff(table.summary) + "\n";
  out += ".SH SYNOPSIS\n" + troff(table.usage_line()) + "\n";
  if (!table.description.empty()) {
    out += ".SH DESCRIPTION\n";
    for (const auto& paragraph : split(table.description, '\n'))
      out += (paragraph.starts_with("- ") ? ".br\n" : "") + (paragraph.empty() ? ".PP" : troff(paragraph)) + "\n";
  }
  const auto entry = [&](const std::string& left, const std::string& right) {
    out += ".TP\n.B " + troff(left) + "\n" + troff(right) + "\n";
  };
  out += ".SH OPTIONS\n";
  for (const auto& positional : table.positionals) entry(positional.name, positional.help);
  if (table.has_configuration()) {
    entry("--config, -c FILE", "INI file with [section] and key = value; may be given several times, later files win");
    entry("--set KEY=VALUE", "set one key of the configuration; wins over files, like --KEY VALUE");
  }
  entry("--help, -h", "print the options");
  for (const auto& [section, rows] : table.grouped()) {
    if (!section.prefix.empty()) out += ".SS " + troff(section.title) + "\n";
    for (const Option::Spec* row : rows) {
      const std::string remark = row->remark();
      entry(spelling(*row), row->help + (remark.empty() ? "" : " [" + remark + "]"));
    }
  }
  if (!table.words.empty()) out += ".SS Words of other programs\n";
  for (const auto& word : table.words) entry(word->spelling(), word->help);
  if (!table.examples.empty()) {
    out += ".SH EXAMPLES\n";
    for (const auto& example : table.examples)
      out += ".TP\n.B " + troff(example.command) + "\n" + troff(example.what) + "\n";
  }
  out +=
      ".SH EXIT STATUS\n0 success, 1 failure of the program or the machine, 2 wrong usage, 3 bad data, 85 stopped by a "
      "signal or time limit after writing a checkpoint.\n";
  return out;
}

}  // namespace lockstep
