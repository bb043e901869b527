#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/io/h5.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

/// A sharded checkpoint is a manifest and one part per rank. The manifest is a checkpoint in which a large array is a
/// group with its shape and type instead of a dataset. A part holds the slices of all arrays that lie in its share of
/// all elements. The names of the parts contain the number of their manifest, so an interrupted attempt never
/// overwrites good parts.

/// An array of a checkpoint, of which `data` holds the elements [begin, begin + count) in host memory.
struct StoredArray {
  std::string dataset;
  Shape shape;
  DType dtype;
  std::int64_t begin = 0, count = 0;
  const std::byte* data = nullptr;
};

std::vector<std::int64_t> extents(const Shape& shape);

/// Calls f<T>() for the type of a stored array: floating-point, or i32 in the state of a training program.
template <class F>
void visit_stored(DType dtype, const F& f) {
  if (dtype == DType::i32) return f.template operator()<std::int32_t>();
  visit_float(dtype, f);
}

/// Writes a whole array in blocks.
void write_array(H5File& file, const StoredArray& array);

/// "step-12.h5.<number>.part-2-of-4", beside the manifest.
std::filesystem::path part_file(const std::filesystem::path& manifest, const std::string& number, int part, int parts);

/// Writes the elements in memory as a part, whole or not at all, and reads them back; returns the end mark.
/// errors  Error (internal)
std::string write_part_file(const std::filesystem::path& path, const std::vector<StoredArray>& arrays);

/// Writes the group that replaces an array, and the list of parts, to a manifest before it is sealed.
void write_placeholder(H5File& file, const StoredArray& array);
void write_part_list(H5File& file, const std::filesystem::path& manifest, const std::string& number,
                     const std::vector<std::string>& end_marks);

/// The dataset of a manifest that lists its parts.
inline constexpr const char* kPartList = "/parts";
bool is_manifest(const H5File& file);
/// The files that a manifest names, in order.
std::vector<std::filesystem::path> part_files(const H5File& manifest);
/// Why a part is damaged or belongs to another manifest, or "".
std::string parts_defect(const H5File& manifest);

/// The arrays of a manifest, read from its parts. One part at a time is open.
class ShardedArrays {
 public:
  /// errors  Error (data): the slices of an array leave a gap or overlap; names the array
  explicit ShardedArrays(const H5File& manifest);
  bool has(const std::string& array) const { return arrays_.contains(array); }
  /// errors  Error (data): no such array
  const H5Info& info(const std::string& array) const { return find(array).info; }
  /// The arrays below a group, sorted.
  std::vector<std::string> under(const std::string& group) const;
  /// Reads all elements. errors  Error (data)
  template <class T>
  void read_into(const std::string& array, std::span<T> out) const;

 private:
  struct Slice {
    std::size_t part;
    std::int64_t begin, count;
  };
  struct Entry {
    H5Info info;
    std::vector<Slice> slices;
  };
  const Entry& find(const std::string& array) const;
  std::filesystem::path manifest_;
  std::vector<std::filesystem::path> parts_;
  std::map<std::string, Entry> arrays_;
};

/// Copies a manifest into one file that holds the arrays themselves. The caller seals it.
/// errors  Error (data) naming the part or array that does not fit
void assemble(const H5File& manifest, H5File& into);

/// Removes the parts in this folder that no manifest names. Keeps parts that have the name of a damaged manifest.
void remove_orphaned_parts(const std::filesystem::path& folder);

}  // namespace lockstep
