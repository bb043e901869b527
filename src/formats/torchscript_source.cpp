#include "torchscript_source.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace lockstep::files {
namespace {

constexpr std::string_view kOpening = "([{", kClosing = ")]}";

bool is_in(std::string_view set, char c) { return set.find(c) != std::string_view::npos; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// The position after the closing quote of the string literal that begins at `at`.
std::size_t end_of_text(std::string_view code, std::size_t at) {
  const char quote = code[at++];
  while (at < code.size() && code[at] != quote) at += code[at] == '\\' ? 2 : 1;
  return std::min(at + 1, code.size());
}

/// The parameter names of "def f(self: T, x: Tensor=1) -> Tensor:".
std::vector<std::string> parameters_of(const std::string& header) {
  std::vector<std::string> out;
  int depth = 0;
  bool expected = false;
  for (std::size_t i = 0; i < header.size();) {
    if (is_in("\"'", header[i])) {
      i = end_of_text(header, i);
      continue;
    }
    if (depth == 1 && expected && is_word(header[i])) {
      const std::size_t begin = i;
      while (i < header.size() && is_word(header[i])) ++i;
      out.push_back(header.substr(begin, i - begin));
      expected = false;
      continue;
    }
    expected = expected || (depth == 0 && header[i] == '(') || (depth == 1 && header[i] == ',');
    depth += is_in(kOpening, header[i]) ? 1 : is_in(kClosing, header[i]) ? -1 : 0;
    if (depth == 0 && header[i] == ')') break;
    ++i;
  }
  return out;
}

std::string file_of(const std::string& qualified, std::string& name) {
  const std::size_t dot = std::min(qualified.rfind('.'), qualified.size());
  name = qualified.substr(std::min(dot + 1, qualified.size()));
  std::string path = qualified.substr(0, dot);
  std::ranges::replace(path, '.', '/');
  return "code/" + path + ".py";
}

}  // namespace

const std::vector<TorchScriptSource::Line>& TorchScriptSource::lines(const std::string& file) {
  const auto known = files_.find(file);
  if (known != files_.end()) return known->second;
  std::vector<Line>& out = files_[file];
  if (!archive_.has(folder_ + file)) return out;
  const std::string code = archive_.read(folder_ + file);
  int depth = 0;  // of brackets: a statement may span several lines
  bool fresh = true;
  for (std::size_t at = 0; at < code.size();) {
    if (fresh) {
      const std::size_t begin = std::min(code.find_first_not_of(' ', at), code.size());
      if (depth <= 0) out.push_back({begin - at, {}}), depth = 0;
      at = begin;
      fresh = false;
      continue;
    }
    std::string& text = out.back().text;
    if (code[at] == '\n') {
      fresh = true;
      if (depth > 0) text += ' ';
      ++at;
    } else if (is_in("\"'", code[at])) {
      const std::size_t end = end_of_text(code, at);
      text += code.substr(at, end - at);
      at = end;
    } else {
      depth += is_in(kOpening, code[at]) ? 1 : is_in(kClosing, code[at]) ? -1 : 0;
      text += code[at++];
    }
  }
  std::erase_if(out, [](const Line& line) { return line.text.empty(); });
  return out;
}

std::optional<TorchScriptFunction> TorchScriptSource::find(const std::string& file, std::size_t begin,
                                                           std::size_t indent, const std::string& name) {
  const std::vector<Line>& all = lines(file);
  for (std::size_t i = begin; i < all.size() && all[i].indent >= indent; ++i) {
    if (all[i].indent != indent || !all[i].text.starts_with("def " + name + "(")) continue;
    TorchScriptFunction out{file, parameters_of(all[i].text), {}};
    while (++i < all.size() && all[i].indent > indent) out.body.push_back(all[i].text);
    return out;
  }
  return std::nullopt;
}

std::optional<TorchScriptFunction> TorchScriptSource::function(const std::string& qualified) {
  std::string name;
  const std::string file = file_of(qualified, name);
  return find(file, 0, 0, name);
}

std::optional<TorchScriptFunction> TorchScriptSource::method(const std::string& qualified_class,
                                                             const std::string& name) {
  std::string class_name;
  const std::string file = file_of(qualified_class, class_name);
  const std::vector<Line>& all = lines(file);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].indent == 0 && all[i].text.starts_with("class " + class_name + "(")) return find(file, i + 1, 2, name);
  return std::nullopt;
}

std::optional<std::vector<TorchScriptToken>> torchscript_tokens(std::string_view statement) {
  using Kind = TorchScriptToken::Kind;
  std::vector<TorchScriptToken> out;
  for (std::size_t at = 0; at < statement.size();) {
    const char c = statement[at];
    std::size_t end = at + 1;
    if (c == ' ') {
      at = end;
      continue;
    }
    TorchScriptToken token{Kind::sign, {}, 0};
    if (is_digit(c)) {
      token.kind = Kind::number;
      const auto read = std::from_chars(statement.data() + at, statement.data() + statement.size(), token.number);
      if (read.ec != std::errc()) return std::nullopt;
      end = static_cast<std::size_t>(read.ptr - statement.data());
    } else if (is_word(c)) {
      token.kind = Kind::word;
      while (end < statement.size() && is_word(statement[end])) ++end;
    } else if (is_in("\"'", c)) {
      token.kind = Kind::text;
      end = end_of_text(statement, at);
      if (end - at < 2) return std::nullopt;
      token.text = statement.substr(at + 1, end - at - 2);
    } else if (!is_in("()[],.=-", c)) {
      return std::nullopt;
    }
    if (token.kind != Kind::text) token.text = statement.substr(at, end - at);
    out.push_back(std::move(token));
    at = end;
  }
  out.emplace_back();
  return out;
}

}  // namespace lockstep::files
