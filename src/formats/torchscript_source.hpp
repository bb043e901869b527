#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/io/zip.hpp"

namespace lockstep::files {

/// A function or method of an archive's code.
struct TorchScriptFunction {
  std::string file;                     ///< "code/__torch__.py"
  std::vector<std::string> parameters;  ///< names
  std::vector<std::string> body;        ///< statements, each one line
};

/// The source text of a TorchScript archive.
class TorchScriptSource {
 public:
  /// folder  of the archive, with a trailing slash. `archive` must outlive this.
  TorchScriptSource(const ZipReader& archive, std::string folder) : archive_(archive), folder_(std::move(folder)) {}
  /// The method of a class "__torch__.a.b.Net", or nothing.
  std::optional<TorchScriptFunction> method(const std::string& qualified_class, const std::string& name);
  /// The function "__torch__.a.b.f", or nothing.
  std::optional<TorchScriptFunction> function(const std::string& qualified);

 private:
  struct Line {
    std::size_t indent = 0;
    std::string text;
  };
  /// "__torch__.a.Net" lies in code/__torch__/a.py.
  const std::vector<Line>& lines(const std::string& file);
  std::optional<TorchScriptFunction> find(const std::string& file, std::size_t begin, std::size_t indent,
                                          const std::string& name);

  const ZipReader& archive_;
  std::string folder_;
  std::map<std::string, std::vector<Line>> files_;
};

/// A word, number, text or sign of a statement.
struct TorchScriptToken {
  enum class Kind : std::uint8_t { word, number, text, sign, end };
  Kind kind = Kind::end;
  std::string text;
  double number = 0;
};
/// The tokens of a statement, then `end`; nothing if a character is unknown.
std::optional<std::vector<TorchScriptToken>> torchscript_tokens(std::string_view statement);

}  // namespace lockstep::files
