#include "prep/page.hpp"

#include <algorithm>

namespace lockstep::prep {

Page::Page(std::ostream& out, const H5File& file, const std::string& title) : out_(out), file_(file) {
  out_ << file.path().string() << ": " << title << ", format version " << file.int_attribute("/", "version") << "\n";
}

void Page::sources(const std::vector<std::string>& names, const std::vector<std::string>& sums) {
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    line(i == 0 ? "sources" : "", names[i], i < sums.size() ? "  sha256 " + sums[i] : "");
  if (names.size() > kShown) line("", "and ", names.size() - kShown, " more");
}

void Page::attributes(const std::string& object, const DatasetNotes& some) {
  for (const std::string& attribute : file_.attributes(object)) width_ = std::max(width_, attribute.size() + 1);
  for (const auto& attribute : some)
    std::visit(
        [&](const auto& value) {
          if constexpr (requires { out_ << value; }) line(attribute.first, value);
        },
        attribute.second);
}

}  // namespace lockstep::prep
