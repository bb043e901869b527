#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/io/h5.hpp"
#include "lockstep/optim/optimizer.hpp"

namespace lockstep {

/// Sharded checkpoints: a manifest, which is a checkpoint whose large arrays are groups with their shape and type instead of
/// datasets, and a part per rank, which holds one slice of each array that reaches into its share of all elements. The parts of one
/// manifest carry its number in their names, so that parts of an interrupted attempt never take the place of good ones.

/// One array of a checkpoint under its dataset's name.
struct StoredArray {
  std::string dataset;
  Tensor value;
};

/// Weights and optimizers' vectors are floating-point, state of a training program may be integers.
template <class F>
void visit_stored(DType dtype, const F& f) {
  if (dtype == DType::i32) return f.template operator()<std::int32_t>();
  visit_float(dtype, f);
}

/// "step-12.h5.<number>.part-2-of-4", beside the manifest.
std::filesystem::path part_file(const std::filesystem::path& manifest, const std::string& number, int part, int parts);

/// Part `part` of `parts` of these arrays, whole or absent. Returns its end mark. errors  Error (internal) when it cannot be written
std::string write_part(const std::filesystem::path& path, const std::vector<StoredArray>& arrays, int part, int parts);

/// In the manifest, before it is sealed: what stands for an array, and which parts belong to it.
void write_placeholder(H5File& file, const StoredArray& array);
void write_part_list(H5File& file, const std::string& number, const std::vector<std::string>& end_marks);

bool is_manifest(const H5File& file);
/// The files that a manifest names, in order.
std::vector<std::filesystem::path> part_files(const H5File& manifest);
/// Why its parts are not those that the manifest was written with, or "".
std::string parts_defect(const H5File& manifest);

/// Copies a manifest into one file that holds the arrays themselves; sealing is left to the caller.
/// errors  Error (data) naming the part or array that does not fit
void assemble(const H5File& manifest, H5File& into);

/// Removes parts in this folder that no manifest names any more.
void remove_orphaned_parts(const std::filesystem::path& folder);

}  // namespace lockstep
