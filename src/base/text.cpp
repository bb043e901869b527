#include "lockstep/base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <numeric>

namespace lockstep {

std::string printed(const char* format, ...) {
  std::va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  std::string text(std::vsnprintf(nullptr, 0, format, arguments), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

std::string human_bytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return printed(unit == 0 ? "%.0f " : "%.1f ", bytes) + kUnits[unit];
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 1e-3) return printed("%.1fus", seconds * 1e6);
  if (seconds < 1) return printed("%.1fms", seconds * 1e3);
  if (seconds < 60) return printed("%.1fs", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  const auto two = [](std::int64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  if (whole < 3600) return std::to_string(whole / 60) + "m" + two(whole % 60) + "s";
  return std::to_string(whole / 3600) + "h" + two(whole / 60 % 60) + "m";
}

std::string exact(double value) {
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string listed(const std::vector<std::string>& words) { return listed(words, ", "); }

std::string listed(const std::vector<std::string>& words, std::string_view separator) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : std::string(separator)) + word;
  return out;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return "(" + listed(shape, ", ", [](std::int64_t extent) { return std::to_string(extent); }) + ")";
}

std::string trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> fields;
  if (text.empty()) return fields;
  for (std::size_t begin = 0;;) {
    const auto end = text.find(separator, begin);
    fields.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return fields;
    begin = end + 1;
  }
}

namespace {
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row.back();
}

/// The number of bytes of the first character, or 0 if it is a control character or malformed.
std::size_t clean_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[i])) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return lead < 0x20 || lead == 0x7F ? 0 : 1;
  const std::size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  unsigned code = lead & (0x3Fu >> more);
  for (std::size_t i = 1; i <= more; ++i) {
    if ((byte(i) & 0xC0u) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr unsigned kLeast[] = {0, 0x80, 0x800, 0x10000};
  const bool in_range = code >= kLeast[more] && code <= 0x10FFFF && (code < 0xD800 || code >= 0xE000);
  return in_range ? more + 1 : 0;
}
}  // namespace

std::string aligned(const std::vector<std::vector<std::string>>& rows, Align rest) {
  const auto width = [](const std::string& text) {  // UTF-8: only the first byte of a character counts
    return static_cast<std::size_t>(std::ranges::count_if(text, [](char byte) { return (byte & 0xc0) != 0x80; }));
  };
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(widths[c] - width(row[c]), ' ');
      line += "  " + (c > 0 && rest == Align::right ? blanks + row[c] : row[c] + blanks);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    std::size_t distance = edit_distance(word, candidate);
    // A key without its section is a near miss: `lr` suggests `optim.lr`.
    if (candidate.size() > word.size() + 1 && candidate.ends_with(word) &&
        candidate[candidate.size() - word.size() - 1] == '.')
      distance = 1;
    const bool alike = 2 * distance <= candidate.size();  // at least half of it is in the word
    if (alike && distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

bool is_clean_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = clean_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string clean;
  for (std::size_t length = 0; !text.empty(); text.remove_prefix(length)) {
    length = clean_length(text);
    if (length > 0 || text[0] == '\n' || text[0] == '\t')
      clean += text.substr(0, length = std::max<std::size_t>(length, 1));
    else
      clean += printed("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text[length++])));
  }
  return clean;
}

std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns) {
  const std::size_t width = columns > indent + 20 ? columns - indent : 20;
  std::string out;
  for (const auto& paragraph : split(text, '\n')) {
    if (!out.empty()) out += '\n' + std::string(indent, ' ');
    std::size_t used = 0;
    for (const auto& word : split(paragraph, ' ')) {
      if (used > 0 && used + 1 + word.size() > width) {
        out += '\n' + std::string(indent, ' ');
        used = 0;
      }
      if (used > 0) {
        out += ' ';
        ++used;
      }
      out += word;
      used += word.size();
    }
  }
  return out;
}

}  // namespace lockstep
