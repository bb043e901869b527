#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::files {

/// Writes a pickle (protocol 2) opcode by opcode, in the dialect of PyTorch's archive reader.
///
/// source  CPython Lib/pickletools.py; PyTorch torch/csrc/jit/serialization/pickler.cpp
class Pickle {
 public:
  Pickle() { out_ = {'\x80', '\x02'}; }
  Pickle& text(std::string_view value);  ///< BINUNICODE
  Pickle& integer(std::int64_t value);   ///< BININT, or LONG1 beyond 32 bits
  Pickle& real(double value);            ///< BINFLOAT
  Pickle& boolean(bool value) { return op(value ? '\x88' : '\x89'); }
  Pickle& global(std::string_view module, std::string_view name);
  Pickle& mark() { return op('('); }
  Pickle& tuple() { return op('t'); }  ///< of the items after the mark
  Pickle& empty_tuple() { return op(')'); }
  Pickle& empty_list() { return op(']'); }
  Pickle& empty_dict() { return op('}'); }
  Pickle& appends() { return op('e'); }    ///< appends the items after the mark to the list below it
  Pickle& set_items() { return op('u'); }  ///< adds the items after the mark to the dictionary below it
  Pickle& reduce() { return op('R'); }
  Pickle& new_object() { return op('\x81'); }
  Pickle& build() { return op('b'); }
  Pickle& persistent_id() { return op('Q'); }

  Pickle& text_list(const std::vector<std::string>& values);
  /// A list as torch.jit._pickle.build_intlist makes it.
  Pickle& int_list(const std::vector<std::int64_t>& values);
  /// A contiguous f32 tensor with its elements in member `data/<storage>` of the archive.
  Pickle& tensor(int storage, const std::vector<std::int64_t>& shape);

  std::string finish() { return out_ + "."; }

 private:
  Pickle& op(char code) {
    out_ += code;
    return *this;
  }
  std::string out_;
};

}  // namespace lockstep::files
