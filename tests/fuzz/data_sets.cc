// An accepted data set, in any format, has valid labels and readable pixels, and its test set opens
// alone. An error names the folder. A file never causes allocations beyond what its size can
// justify. The first byte selects the format.
#include <zlib.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "tests/data/npz_file.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/cifar10.h"
#include "worker/data/mnist.h"
#include "worker/data/npz_data.h"

namespace muster::fuzz {
namespace fuzz_data_sets {

// The input: the size of each file in records and extra bytes, the note, the labels.
void WriteCifar10(Input input, const Folder& folder) {
  std::vector<std::string> files;
  for (size_t i = 0; i <= kCifar10TrainFiles.size(); ++i) {
    const size_t records = input.Byte() % 5;
    const size_t odd = input.Byte();  // mostly zero
    files.emplace_back(records * kCifar10RecordBytes + (odd > 250 ? odd : 0), '\0');
  }
  folder.Write(kSyntheticNote, input.Piece());
  for (std::string& file : files) {
    for (size_t at = 0; at < file.size(); at += kCifar10RecordBytes) {
      file[at] = static_cast<char>(input.Byte());
    }
  }
  for (size_t i = 0; i < kCifar10TrainFiles.size(); ++i) {
    folder.Write(kCifar10TrainFiles[i], files[i]);
  }
  folder.Write(kCifar10TestFile, files.back());
}

constexpr const char* kMnistFiles[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                       "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// With a valid checksum, which a fuzzer could not guess.
std::string Compressed(const std::string& bytes) {
  z_stream stream = {};
  Require(deflateInit2(&stream, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
          "zlib");
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  Require(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// The first byte tells which of the four files are correctly compressed.
void WriteMnist(Input input, const Folder& folder) {
  const uint8_t how = input.Byte();
  for (size_t i = 0; i < std::size(kMnistFiles); ++i) {
    const std::string bytes = i + 1 < std::size(kMnistFiles) ? input.Piece() : input.Rest();
    const bool packed = (how >> i & 1) != 0;
    folder.Write(kMnistFiles[i] + std::string(".gz"), packed ? Compressed(bytes) : bytes);
  }
}

// The input: whether the file is not an archive, whether it is compressed, and its arrays.
void WriteNpz(Input input, const Folder& folder) {
  const uint8_t how = input.Byte();
  const std::string name = "train.npz";
  if ((how & 1) != 0) {
    (void)folder.Write(name, input.Rest());
  } else {
    const std::string x = input.Piece();
    testing::WriteNpzFile(folder / name, {{"x", x}, {"y", input.Rest()}}, (how & 2) != 0);
  }
  std::filesystem::copy_file(folder / name, folder / "test.npz",
                             std::filesystem::copy_options::overwrite_existing);
}

config::Data NpzIn(const std::string& dir) {
  config::Data data;
  data.set_format(config::Data::NPZ);
  data.set_dir(dir);
  ResolveFromFiles(data);
  return data;
}

struct Format {
  void (*write)(Input input, const Folder& folder);
  Datasets (*open)(const std::string& dir);
  std::shared_ptr<const Dataset> (*open_test)(const std::string& dir);
};
// Wraps the two readers that return a single set.
template <std::unique_ptr<Dataset> (*open)(const std::string& dir)>
std::shared_ptr<const Dataset> OpenTest(const std::string& dir) {
  return open(dir);
}
constexpr Format kFormats[] = {
    {WriteCifar10, OpenCifar10, OpenTest<OpenCifar10Test>},
    {WriteMnist, [](const std::string& dir) { return OpenMnist(dir); },
     [](const std::string& dir) -> std::shared_ptr<const Dataset> { return OpenMnistTest(dir); }},
    {WriteNpz, [](const std::string& dir) { return OpenNpz(NpzIn(dir)); },
     [](const std::string& dir) { return OpenNpzTest(NpzIn(dir), 1).test; }}};

void CheckSet(const Dataset& set) {
  std::vector<uint8_t> buffer;
  for (int64_t i = 0; i < set.size(); ++i) {
    const bool are_values = set.classes() == 0;
    Require(are_values || (set.Label(i) >= 0 && set.Label(i) < set.classes()),
            "a label out of range");
    const std::span<const uint8_t> pixels = set.Planes(i, buffer);
    Require(static_cast<int64_t>(pixels.size()) == set.shape().elements(), "pixels are missing");
    volatile uint8_t last = pixels.back();
    (void)last;
  }
}

// `test`: opened without the training files.
void CheckSets(const Datasets& sets, const Dataset& test) {
  CheckSet(*sets.train);
  CheckSet(*sets.test);
  Require(test.Fingerprint() == sets.test->Fingerprint(),
          "the test set differs without the training files");
}

}  // namespace fuzz_data_sets
}  // namespace muster::fuzz

FUZZ_TARGET(data_sets) {
  using namespace muster::fuzz;
  using namespace muster::fuzz::fuzz_data_sets;
  SilenceLogs();
  Input input(data, size);
  const Format& format = kFormats[input.Byte() % std::size(kFormats)];
  static const Folder folders[std::size(kFormats)];  // files of the other formats remain
  const Folder& folder = folders[&format - kFormats];
  format.write(input, folder);
  OrError(folder.path(),
          [&] { CheckSets(format.open(folder.path()), *format.open_test(folder.path())); });
  return 0;
}
