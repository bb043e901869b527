#include "prep/page.hpp"

#include <algorithm>
#include <string_view>

#include "lockstep/io/seal.hpp"

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

void Page::attributes(const std::string& object, std::initializer_list<const char*> shown) {
  const std::vector<std::string> all = file_.attributes(object);
  for (const std::string& attribute : all) width_ = std::max(width_, attribute.size() + 1);
  for (const std::string& attribute : all) {
    const bool known = attribute == "format" || attribute == "version" || is_seal(attribute) ||
                       std::ranges::find(shown, std::string_view(attribute)) != shown.end();
    if (known) continue;
    std::visit(
        [&](const auto& value) {
          if constexpr (requires { out_ << value; }) line(attribute, value);
        },
        file_.attribute(object, attribute));
  }
}

}  // namespace lockstep::prep
