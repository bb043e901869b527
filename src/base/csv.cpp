#include "lockstep/base/csv.hpp"

#include <algorithm>
#include <istream>

namespace lockstep {

bool next_line(std::istream& in, std::string& line, std::int64_t& number) {
  if (!std::getline(in, line)) return false;
  if (line.ends_with('\r')) line.pop_back();
  if (++number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  return true;
}

bool split_csv(std::string_view line, std::vector<std::string>& fields) {
  std::size_t used = 0;
  for (std::size_t at = 0;; ++at) {
    if (used == fields.size()) fields.emplace_back();
    std::string& field = fields[used++];
    if (at < line.size() && line[at] == '"') {
      field.clear();
      for (++at;; ++at) {
        if (at >= line.size()) return false;
        if (line[at] == '"' && (++at >= line.size() || line[at] != '"')) break;
        field += line[at];
      }
      if (at < line.size() && line[at] != ',') return false;
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      field.assign(line.substr(at, end - at));
      at = end;
    }
    if (at >= line.size()) break;
  }
  fields.resize(used);
  return true;
}

}  // namespace lockstep
