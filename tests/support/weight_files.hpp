#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/array_function.hpp"
#include "lockstep/models/har/har_weights.hpp"

namespace lockstep::test {

/// The network of tests/golden/<name>.h5, a SASRec or TiSASRec with PyTorch's weights, as `lockstep export` writes it.
NamedArrays golden_sequence_file(const std::string& name);
/// A small network of three channels with random weights, and the same as a file.
HarArch small_har(HarArch::Mode mode, HarArch::Pool pool, bool pre_norm);
HarMetadata har_data(const HarArch& arch);
NamedArrays har_file(const HarArch& arch);

/// Tables of 6 users and 9 items.
NamedArrays bprmf_file();

/// A network of 7 cells, 6 tokens and 3 identifiers; 4 segments.
NamedArrays hrm_file();

/// Networks of every kind whose only output is scores, by name.
std::vector<std::pair<std::string, NamedArrays>> network_files();
/// The function for the kind that the file names.
std::unique_ptr<ArrayFunction> function_of(const NamedArrays& file);

/// Inputs of n samples for a function, and its outputs, as bytes.
struct NetworkCase {
  std::vector<std::string> inputs, outputs;
};
NetworkCase make_case(const ArrayFunction& function, std::int64_t n);

}  // namespace lockstep::test
