#include "fuzz/formats.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include "formats/pickle.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/hash.hpp"
#include "lockstep/base/options.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/data/data_memory.hpp"
#include "lockstep/formats/emulator_files.hpp"
#include "lockstep/io/weights.hpp"
#include "lockstep/io/zip.hpp"
#include "lockstep/lockstep.h"
#include "lockstep/models/har/har_weights.hpp"
#include "lockstep/prep/format.hpp"
#include "lockstep/prep/source.hpp"
#include "lockstep/proof/proof.hpp"
#include "lockstep/tasks/emulator/emulator_data.hpp"
#include "lockstep/tasks/har/har_data.hpp"
#include "lockstep/tasks/hrm/puzzle_data.hpp"
#include "lockstep/tasks/kgat/kgat_data.hpp"
#include "lockstep/tasks/registry.hpp"
#include "lockstep/tasks/sequences/sequence_data.hpp"
#include "lockstep/train/run_config.hpp"
#include "prep/raw_file.hpp"
#include "support/npy.hpp"
#include "support/paths.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"
#include "support/weight_files.hpp"
#include "tasks/id_table.hpp"
#include "tasks/sequences/history_file.hpp"

namespace lockstep::fuzz {

namespace {

namespace fs = std::filesystem;
using Files = std::vector<std::string>;

/// Runs a program of the build.
void run_program(const char* program, const std::string& arguments) {
  const auto result = test::run_process(test::words_of(test::program_path(program) + " " + arguments));
  require(result.exit_code == 0, "making a sample: ", program, " ", arguments, ":\n", result.out, result.err);
}

/// Runs a source of lockstep-prep in this process. Line: its name and options, in which @ stands for the directory.
template <const char* Line>
std::uint64_t prepare(const fs::path& directory) {
  std::vector<std::string> words = test::words_of(Line + std::string(" --quiet --output @/out.h5"));
  for (std::string& word : words)
    if (word.starts_with('@')) word.replace(0, 1, directory.string());
  for (const prep::Source& source : prep::sources())
    if (source.name == words.front()) source.run({words.begin() + 1, words.end()});
  return 0;
}

// ---- HDF5 -----------------------------------------------------------------------------------------------------------

std::uint64_t hash_of(const H5Value& value, std::uint64_t seed) {
  return std::visit(
      [&]<class T>(const T& v) -> std::uint64_t {
        if constexpr (std::is_arithmetic_v<T>) {
          return hash64(&v, sizeof v, seed);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return hash64(v, seed);
        } else {
          for (const auto& element : v) seed = hash_of(H5Value(element), seed);
          return seed;
        }
      },
      value);
}

/// A checksum of all names, types, shapes, values and attributes.
std::uint64_t hash_of(const H5File& file) {
  std::uint64_t hash = 0;
  const auto add_attributes = [&](const std::string& object) {
    for (const auto& name : file.attributes(object)) hash = hash_of(file.attribute(object, name), hash64(name, hash));
  };
  add_attributes("/");
  for (const auto& dataset : file.datasets_under("/")) {
    const H5Info info = file.info(dataset);
    hash = hash64(dataset, hash);
    hash = hash64(info.shape.data(), info.shape.size() * sizeof info.shape[0], hash);
    add_attributes(dataset);
    if (info.type == H5Type::text) {
      hash = hash_of(H5Value(file.read_text(dataset)), hash);
    } else if (info.type == H5Type::f32 || info.type == H5Type::f64) {
      const auto values = file.read<double>(dataset);
      hash = hash64(values.data(), values.size() * sizeof(double), hash);
    } else {
      const auto values = file.read<std::int64_t>(dataset);
      hash = hash64(values.data(), values.size() * sizeof(std::int64_t), hash);
    }
  }
  return hash;
}

// ---- Prepared data --------------------------------------------------------------------------------------------------

template <class Data>
std::uint64_t read_data(const fs::path& path) {
  LocalDataMemory data_memory;
  if constexpr (std::is_same_v<Data, PuzzleData>)
    Data::open(path, data_memory);
  else
    Data::read(path, data_memory);
  const H5File file = H5File::open(path);
  std::vector<std::string> remarks;
  const auto problems = prep::format_of(file).check(file, remarks);
  require_data(problems.empty(), problems.empty() ? "" : problems.front());
  return hash_of(file);
}

template <const char* Arguments, class Data>
constexpr Format dataset(const char* name) {
  return {name, false, true,
          [](const fs::path& directory) {
            run_program("lockstep-prep",
                        Arguments + std::string(" --quiet --output ") + (directory / "data.h5").string());
            return Files{"data.h5"};
          },
          [](const fs::path& directory) { return read_data<Data>(directory / "data.h5"); }};
}
constexpr char kSequences[] =
    "synth-sequences --users 12 --min-length 6 --max-length 9 --categories 4 --clusters 2 --members 5";
constexpr char kGraph[] = "synth-kg --users 12";
constexpr char kPuzzles[] = "synth-sudoku --order 2 --train 8 --test 4";
constexpr char kActivities[] = "synth-har --subjects 4 --seconds 6";
constexpr char kColumns[] = "synth-icecolumn --rows 60";

// ---- Checkpoints ----------------------------------------------------------------------------------------------------

std::uint64_t read_checkpoint(const fs::path& path) {
  const CheckpointReader reader(path);
  Options options("lockstep train", "");
  RunConfig config;
  add_options(options, config, reader.model_kind());
  options.parse_ini(reader.config(), path.string());
  reader.state();
  return hash_of(reader.file());
}

/// Trains two steps. Returns the files of the checkpoint.
template <const char* Layout>
Files make_checkpoint(const fs::path& directory) {
  run_program("lockstep-prep", kColumns + std::string(" --quiet --output ") + (directory / "data.h5").string());
  run_program("lockstep",
              "train --config " + test::source_path("configs/emulator-icecolumn.ini") + " --data.path " +
                  (directory / "data.h5").string() + " --model.hidden_size 4 --batch.size 8 --steps 3 --run-dir " +
                  (directory / "run").string() + " --checkpoint.every_steps 2 --checkpoint.layout " + Layout);
  Files files;
  for (const auto& entry : fs::directory_iterator(directory / "run/checkpoints"))
    if (entry.path().filename().string().starts_with("step-2.h5"))
      files.push_back(fs::relative(entry.path(), directory).string());
  require(!files.empty(), "making a sample: no checkpoint of step 2");
  return files;
}
constexpr char kSingle[] = "single", kSharded[] = "sharded";

std::uint64_t read_run(const fs::path& directory) { return read_checkpoint(directory / "run/checkpoints/step-2.h5"); }

// ---- Proof chains ---------------------------------------------------------------------------------------------------

Files make_chain(const fs::path& directory) {
  ProofChain chain;
  ProofRun run;
  run.kind = "emulator", run.build = "a build", run.every = 10, run.parameters = {"a", "b"};
  chain.add({.is_run = true, .run = run, .link = {}});
  for (const std::int64_t step : {0, 10, 20})
    chain.add({.is_run = false, .run = {}, .link = {.step = step, .weights = {1, 2}}});
  test::write_text(directory / kProofFile, chain.text());
  return {kProofFile};
}
std::uint64_t read_chain(const fs::path& directory) { return hash64(ProofChain::read(directory / kProofFile).text()); }

// ---- Model files ----------------------------------------------------------------------------------------------------

/// The network of the code of a TorchScript archive: the archive's checksums hide a change from the reader.
constexpr char kCode[] = "code/__torch__.py";
Files make_code(const fs::path& directory) {
  const std::string archive = test::read_text(test::golden_path("emulator_aice.ts"));
  test::write_text(directory / "code.py", ZipReader(archive, "sample").read(std::string("emulator/") + kCode));
  return {"code.py"};
}
std::uint64_t read_code(const fs::path& directory) {
  const std::string archive = test::read_text(test::golden_path("emulator_aice.ts"));
  const ZipReader zip(archive, "sample");
  ZipWriter out;
  for (const std::string& name : zip.names())
    out.add(name, name.ends_with(kCode) ? test::read_text(directory / "code.py") : zip.read(name));
  const std::string bytes = out.finish();
  return read_emulator(std::as_bytes(std::span(bytes)), "sample").network.params().hash();
}

template <EmulatorFormat Kind>
Files make_model(const fs::path& directory) {
  make_checkpoint<kSingle>(directory);
  run_program("lockstep", "export --checkpoint " + (directory / "run/checkpoints/step-2.h5").string() + " --format " +
                              name(Kind) + " --output " + (directory / "model").string());
  return {"model"};
}

/// The checksum of the network and its description, written again as .lsem.
std::uint64_t read_model(const fs::path& directory) {
  const TrainedEmulator model = read_emulator(directory / "model");
  const fs::path again = directory / "again.lsem";
  write_emulator(again, EmulatorFormat::lsem, model.network, model.metadata);
  return hash64(test::read_text(again));
}

// ---- Weights of other programs --------------------------------------------------------------------------------------

const std::vector<float> kMatrix = {1, 2, 3, 4, 5, 6}, kVector = {0.5F, -2};

Files make_safetensors(const fs::path& directory) {
  NamedArrays content;
  content.arrays.resize(2);
  content.arrays[0].name = "b", content.arrays[0].shape = {2}, content.arrays[0].values = kVector;
  content.arrays[1].name = "w", content.arrays[1].shape = {2, 3}, content.arrays[1].values = kMatrix;
  content.metadata = {{"format", "lockstep-weights"}, {"kind", "bprmf"}};
  test::write_text(directory / "weights", safetensors_bytes(content));
  return {"weights"};
}

Files make_npz(const fs::path& directory) {
  ZipWriter zip;
  zip.add("b.npy", test::npy("<f4", "2,", kVector));
  zip.add("w.npy", test::npy("<f4", "2, 3", kMatrix));
  test::write_text(directory / "weights", zip.finish());
  return {"weights"};
}

Files make_torch(const fs::path& directory) {
  files::Pickle pickle;
  pickle.empty_dict().mark().text("epoch").integer(3).text("model").empty_dict().mark();
  pickle.text("b").tensor(0, {2}).text("w").tensor(1, {2, 3}).set_items().set_items();
  ZipWriter zip;
  zip.add("weights/data.pkl", pickle.finish());
  zip.add("weights/byteorder", "little");
  zip.add("weights/data/0", test::bytes_of(kVector));
  zip.add("weights/data/1", test::bytes_of(kMatrix));
  test::write_text(directory / "weights", zip.finish());
  return {"weights"};
}

std::uint64_t read_arrays(const fs::path& directory) {
  NamedArrays content = read_weights(directory / "weights");
  return hash64(safetensors_bytes(content));
}

/// Networks for liblockstep.
template <auto File>
Files make_network(const fs::path& directory) {
  test::write_text(directory / "network", safetensors_bytes(File()));
  return {"network"};
}
std::uint64_t read_network(const fs::path& directory) {
  lsnet_model* opened = nullptr;
  const int status = lsnet_open((directory / "network").c_str(), &opened);
  const std::unique_ptr<lsnet_model, decltype(&lsnet_close)> model(opened, lsnet_close);
  require_data(status == LSEM_OK, lsem_last_error());
  std::vector<std::vector<std::int64_t>> arrays;  // one sample of each array; floats fill a half
  std::vector<void*> at[2];
  for (const int is_output : {0, 1}) {
    for (int i = 0; i < lsnet_arrays(opened, is_output); ++i) {
      const long extent = std::max(1L, lsnet_array_extent(opened, is_output, i, 1));
      arrays.emplace_back(static_cast<std::size_t>(extent), is_output ? 0 : 1);
      at[is_output].push_back(arrays.back().data());
    }
  }
  require_data(lsnet_predict(opened, 1, at[0].data(), at[1].data(), nullptr) == LSEM_OK, lsem_last_error());
  std::uint64_t hash = 0;
  for (const std::vector<std::int64_t>& array : arrays)
    hash = hash * 31 + hash64(array.data(), array.size() * sizeof array[0]);
  return hash;
}

// ---- Configurations -------------------------------------------------------------------------------------------------

constexpr char kIni[] = "run.ini", kYaml[] = "run.yaml";

Files make_ini(const fs::path& directory) {
  fs::copy_file(test::source_path("configs/har-hapt.ini"), directory / kIni);
  return {kIni};
}

Files make_yaml(const fs::path& directory) {
  test::write_text(directory / kYaml,
                   "# a run\nmodel:\n  kind: har\n  layers: 2\n  mode: 'flatten'\nbatch:\n  size: 32  # of all ranks\n"
                   "dist:\n  gpu_ids:\n    - 0\n    - \"1\"\ndata_path: null\n");
  return {kYaml};
}

template <const char* kFile>
std::uint64_t read_configuration(const fs::path& directory) {
  const std::string path = (directory / kFile).string();
  const std::string kind = Options::peek({"--config", path}, {"model.kind"});
  Options options("lockstep train", "");
  RunConfig config;
  add_options(options, config, kind.empty() ? task_kinds().front().name : kind);
  options.parse({"--config", path});
  return hash64(options.ini());
}

// ---- Raw data -------------------------------------------------------------------------------------------------------

Files make_manifest(const fs::path& directory) {
  std::string table = "front,back\n";
  for (int i = 0; i < 12; ++i) table += std::to_string(i) + "," + std::to_string(i * i) + ".5e-1\n";
  for (const char* file : {"a.csv", "b.csv", "c.csv"}) test::write_text(directory / file, table);
  test::write_text(directory / "list.csv",
                   "path,label,subject,split\na.csv,walk,ann,train\nb.csv,sit,bob,val\nc.csv,run,cleo,test\n");
  return {"list.csv", "a.csv"};
}
constexpr char kPrepareManifest[] = "har --format manifest @/list.csv --rate 20 --window 4 --stride 3";

template <const char* Text>
Files make_text(const fs::path& directory) {
  test::write_text(directory / "in.txt", Text);
  return {"in.txt"};
}
Files make_ratings(const fs::path& directory) {
  std::string lines;
  for (int user = 1; user < 6; ++user)
    for (int i = 0; i < 8; ++i)
      lines += std::to_string(user) + "::" + std::to_string(100 + (user * i) % 9) + "::5::" + std::to_string(1000 * i) +
               "\n";
  test::write_text(directory / "ratings.dat", lines);
  return {"ratings.dat"};
}
constexpr char kPrepareRatings[] = "sequences --input @/ratings.dat";
constexpr char kTable[] =
    "user,item,rating,timestamp\nanna,12,4,10\nanna,7,3.5,35\nanna,12,5,2020-01-02T03:04:05Z\n\"b, ob\",12,2,60\n"
    "\"b, ob\",7,4,70\nanna,9,2,900000\n";
constexpr char kLines[] =
    "{\"user_id\": \"anna\", \"asin\": 12, \"unixReviewTime\": 10}\n"
    "{\"user_id\": \"anna\", \"asin\": 7, \"unixReviewTime\": 1e3}\n"
    "{\"user_id\": \"anna\", \"asin\": \"9\", \"unixReviewTime\": \"77\"}\n"
    "{\"user_id\": \"anna\", \"asin\": 7, \"unixReviewTime\": 2000}\n"
    "{\"user_id\": \"\u00e9\\n\", \"asin\": 12, \"unixReviewTime\": 5}\n";
constexpr char kPrepareInteractions[] = "sequences --input @/in.txt --min-user 1 --min-item 1 --where rating>=2";
constexpr char kPrepareObjects[] = "sequences --input @/in.txt --min-user 1 --min-item 1";
constexpr char kMazes[] = "source,question,answer\na,S  ## G  ,Soo##oGoo\nb,\"SG       \",\"SG       \"\n";
constexpr char kPrepareMazes[] = "maze --train @/in.txt";

Files make_graph(const fs::path& directory) {
  std::string train, kg;
  for (int user = 0; user < 6; ++user) {
    train += std::to_string(user);
    for (int i = 0; i < 4; ++i) train += " " + std::to_string((user * 3 + i) % 9);
    train += "\n";
  }
  for (int i = 0; i < 9; ++i)
    kg += std::to_string(i) + " " + std::to_string(i % 2) + " " + std::to_string(9 + i % 4) + "\n";
  fs::create_directories(directory / "raw");
  test::write_text(directory / "raw/train.txt", train);
  test::write_text(directory / "raw/test.txt", "0 7\n1 8\n2 1\n");
  test::write_text(directory / "raw/kg_final.txt", kg);
  test::write_text(directory / "raw/relation_list.txt", "org_id remap_id\nhttp://a/b 0\nhttp://c/d 1\n");
  return {"raw/train.txt", "raw/test.txt", "raw/kg_final.txt", "raw/relation_list.txt"};
}
constexpr char kPrepareGraph[] = "kg --input @/raw --max-nodes 1000000";

Files make_puzzles(const fs::path& directory) {
  test::write_text(
      directory / "train.csv",
      "source,question,answer,rating\nx,12343412214343..,1234341221434321,0\nx,.234341221434321,1234341221434321,7\n");
  return {"train.csv"};
}
constexpr char kPreparePuzzles[] = "sudoku --train @/train.csv";

/// A folder of the HRM repository's builders: one Sudoku, the same for training and test.
Files make_builder(const fs::path& directory) {
  const std::vector<std::uint8_t> grid = {2, 3, 4, 5, 4, 5, 2, 3, 3, 2, 5, 4, 5, 4, 3, 2};
  const std::map<std::string, std::string> contents = {
      {"dataset.json",
       R"({"pad_id": 0, "ignore_label_id": 0, "blank_identifier_id": 0, "vocab_size": 6, "seq_len": 16,)"
       R"( "num_puzzle_identifiers": 2, "total_groups": 1, "mean_puzzle_examples": 1, "sets": ["all"]})"},
      {"all__inputs.npy", test::npy("|u1", "1, 16", grid)},
      {"all__labels.npy", test::npy("|u1", "1, 16", grid)},
      {"all__puzzle_indices.npy", test::npy<std::int32_t>("<i4", "2,", {0, 1})},
      {"all__group_indices.npy", test::npy<std::int32_t>("<i4", "2,", {0, 1})},
      {"all__puzzle_identifiers.npy", test::npy<std::int32_t>("<i4", "1,", {1})}};
  for (const char* split : {"raw/train", "raw/test"}) {
    fs::create_directories(directory / split);
    for (const auto& [name, text] : contents) test::write_text(directory / split / name, text);
  }
  test::write_text(directory / "raw/identifiers.json", R"(["<blank>", "first"])");
  return {"raw/train/dataset.json", "raw/train/all__inputs.npy", "raw/identifiers.json"};
}
constexpr char kPrepareBuilder[] = "hrm-npy --input @/raw --task sudoku";

Files make_arc(const fs::path& directory) {
  fs::create_directories(directory / "tasks");
  test::write_text(directory / "tasks/0a.json",
                   R"({"train": [{"input": [[0, 1], [2, 3]], "output": [[1, 0], [3, 2]]}],)"
                   R"( "test": [{"input": [[4, 5]], "output": [[5, 4]]}]})");
  test::write_text(
      directory / "tasks/0b.json",
      R"({"train": [{"input": [[6]], "output": [[7]]}], "test": [{"input": [[4, 5]]}, {"input": [[8], [9]]}]})");
  return {"tasks/0a.json", "tasks/0b.json"};
}
constexpr char kPrepareArc[] = "arc --input @/tasks --num-aug 2";

Files make_netcdf(const fs::path& directory) {
  std::vector<test::RawVariable> variables;
  for (const char* name : {"lat", "lon", "tsea", "aice"}) {
    const std::size_t number = variables.size();
    std::vector<double> values(number < 2 ? 12 : 24);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(static_cast<float>((i * (number + 3)) % 17) * 0.05f);
    const std::vector<std::string> dims = {"time", "cell"};
    variables.push_back({name, NC_FLOAT, {dims.begin() + (number < 2 ? 1 : 0), dims.end()}, values, {{"units", "1"}}});
  }
  test::write_netcdf(directory / "a.nc", NC_64BIT_OFFSET, {{"time", NC_UNLIMITED}, {"cell", 12}}, variables);
  return {"a.nc"};
}
constexpr char kPrepareNetcdf[] = "netcdf --input @/a.nc --inputs tsea --outputs aice";

// ---- Inputs of predictions ------------------------------------------------------------------------------------------

const IdTable& items() {
  static const IdTable table = IdTable::numbers(40);
  return table;
}
constexpr char kEvents[] = "user,item,time\nanna,12,10\nanna,7,35\n\"b, ob\",3,60\nanna,7,36\n";
constexpr char kObjects[] =
    "{\"user\": \"anna\", \"items\": [\"12\", 7], \"times\": [10, 35]}\n{\"user\": 5, \"items\": [3], \"times\": "
    "[60]}\n";
constexpr char kIds[] = "12\n7\n\n39\n";
std::uint64_t read_text_histories(const fs::path& directory) {
  const Histories read =
      read_histories((directory / "in.txt").string(), {}, items(), "40 items", Unknown::refuse, true, "per_user_min");
  return hash64(read.item.data(), read.item.size() * sizeof read.item[0]);
}
std::uint64_t read_text_ids(const fs::path& directory) {
  const auto ids = find_ids(read_ids((directory / "in.txt").string()), items(), "ids", "40 items");
  return hash64(ids.data(), ids.size() * sizeof ids[0]);
}

constexpr Format kFormats[] = {
    {"checkpoint", false, true, make_checkpoint<kSingle>, read_run},
    {"sharded-checkpoint", false, true, make_checkpoint<kSharded>, read_run},
    {"proof-chain", true, false, make_chain, read_chain},
    dataset<kSequences, SequenceData>("sequences"),
    dataset<kGraph, KgData>("kgat"),
    dataset<kPuzzles, PuzzleData>("hrm"),
    dataset<kActivities, HarData>("har"),
    dataset<kColumns, EmulatorData>("emulator"),
    {"lsem", false, true, make_model<EmulatorFormat::lsem>, read_model},
    {"h5model", false, true, make_model<EmulatorFormat::h5model>, read_model},
    {"safetensors", false, true, make_model<EmulatorFormat::safetensors>, read_model},
    {"onnx", false, false, make_model<EmulatorFormat::onnx>, read_model},
    {"torchscript", false, false, make_model<EmulatorFormat::torchscript>, read_model},
    {"torchscript-code", true, false, make_code, read_code},
    {"weights", false, true, make_safetensors, read_arrays},
    {"network", false, true, make_network<[] { return test::golden_sequence_file("tisasrec_sasrec"); }>, read_network},
    {"tables", false, true, make_network<test::bprmf_file>, read_network},
    {"solver", false, true, make_network<test::hrm_file>, read_network},
    {"npz", false, false, make_npz, read_arrays},
    {"pt", false, false, make_torch, read_arrays},
    {"ini", true, false, make_ini, read_configuration<kIni>},
    {"yaml", true, false, make_yaml, read_configuration<kYaml>},
    {"manifest", true, false, make_manifest, prepare<kPrepareManifest>},
    {"ratings", true, false, make_ratings, prepare<kPrepareRatings>},
    {"interactions-csv", true, false, make_text<kTable>, prepare<kPrepareInteractions>},
    {"interactions-jsonl", true, false, make_text<kLines>, prepare<kPrepareObjects>},
    {"graph", true, false, make_graph, prepare<kPrepareGraph>},
    {"puzzles", true, false, make_puzzles, prepare<kPreparePuzzles>},
    {"mazes", true, false, make_text<kMazes>, prepare<kPrepareMazes>},
    {"hrm-npy", false, false, make_builder, prepare<kPrepareBuilder>},
    {"arc", true, false, make_arc, prepare<kPrepareArc>},
    {"netcdf", false, false, make_netcdf, prepare<kPrepareNetcdf>},
    {"histories-csv", true, false, make_text<kEvents>, read_text_histories},
    {"histories-jsonl", true, false, make_text<kObjects>, read_text_histories},
    {"ids", true, false, make_text<kIds>, read_text_ids},
};

}  // namespace

std::span<const Format> formats() { return kFormats; }

std::string message_defect(std::string_view message) {
  if (message.empty()) return "an empty message";
  for (const char c : message)
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0 && c != '\n' && c != '\t')
      return "a message with the control character " + std::to_string(static_cast<int>(c)) + ": " +
             std::string(message);
  return {};
}

}  // namespace lockstep::fuzz
