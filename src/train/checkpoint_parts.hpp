#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/io/h5.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

/// A sharded checkpoint is a manifest and one part per rank. The manifest is a checkpoint in which a large array is a
/// group with its shape and type instead of a dataset. A part holds the slices of all arrays that lie in its share of
/// all elements. The names of the parts contain the number of their manifest, so an interrupted attempt never
/// overwrites good parts.

/// An array of a checkpoint and the name of its dataset.
struct StoredArray {
  std::string dataset;
  Tensor value;
};

/// Calls f<T>() for the type of a stored array: floating-point, or i32 in the state of a training program.
template <class F>
void visit_stored(DType dtype, const F& f) {
  if (dtype == DType::i32) return f.template operator()<std::int32_t>();
  visit_float(dtype, f);
}

/// "step-12.h5.<number>.part-2-of-4", beside the manifest.
std::filesystem::path part_file(const std::filesystem::path& manifest, const std::string& number, int part, int parts);

/// Writes part `part` of `parts` of these arrays, whole or not at all; returns its end mark. errors  Error (internal)
std::string write_part(const std::filesystem::path& path, const std::vector<StoredArray>& arrays, int part, int parts);

/// Writes the group that replaces an array, and the list of parts, to a manifest before it is sealed.
void write_placeholder(H5File& file, const StoredArray& array);
void write_part_list(H5File& file, const std::filesystem::path& manifest, const std::string& number,
                     const std::vector<std::string>& end_marks);

bool is_manifest(const H5File& file);
/// The files that a manifest names, in order.
std::vector<std::filesystem::path> part_files(const H5File& manifest);
/// Why the parts are not whole, or not those of this manifest, or "".
std::string parts_defect(const H5File& manifest);

/// Copies a manifest into one file that holds the arrays themselves. The caller seals it.
/// errors  Error (data) naming the part or array that does not fit
void assemble(const H5File& manifest, H5File& into);

/// Removes the parts in this folder that no manifest names.
void remove_orphaned_parts(const std::filesystem::path& folder);

}  // namespace lockstep
