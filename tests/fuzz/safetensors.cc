// An accepted file has disjoint tensors within its bounds, and its header survives writing and
// reading. Weights load from it, or an error gives the reason.
#include "common/base/memory.h"
#include "common/config/build_graph.h"
#include "common/config/text_format.h"
#include "common/model/load_weights.h"
#include "common/model/model_metadata.h"
#include "proto/config.pb.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_safetensors {

const Graph& Network() {
  static const Graph graph = [] {
    config::Model model;
    ParseText(R"(layer { name: "conv" conv2d { filters: 2 kernel: 3 padding: SAME } }
                 layer { name: "norm" batch_norm {} }
                 layer { name: "out" dense { units: 2 } }
                 layer { name: "loss" softmax_cross_entropy {} })",
              "network", "model", model);
    return BuildGraph(model, {2, 2, 1});
  }();
  return graph;
}

// If the first byte is 0, the rest is the file. Otherwise it is the JSON text and the data.
std::string FileOf(Input input) {
  if (input.Byte() == 0) return input.Rest();
  const std::string text = input.Text();
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + input.Rest();
}

void CheckHeader(const SafetensorsReader& reader, uint64_t file_bytes) {
  const SafetensorsHeader& header = reader.header();
  Require(header.file_bytes() == file_bytes, "the file's size does not match its header");
  uint64_t end = 0;
  for (const StoredTensor& tensor : header.tensors) {
    Require(tensor.begin >= end && tensor.end >= tensor.begin, "tensors overlap");
    end = tensor.end;
    std::vector<std::byte> bytes(tensor.bytes());
    reader.ReadBytes(tensor, bytes);
    Require(header.Find(tensor.name) != nullptr, "a tensor cannot be found by its name");
  }
  const SafetensorsHeader laid_out = LayOutSafetensors(header.tensors, header.metadata);
  const std::string bytes = HeaderBytes(laid_out);
  const SafetensorsHeader again =
      ParseSafetensorsHeader("again", std::string_view(bytes).substr(8), laid_out.file_bytes());
  Require(again.metadata == header.metadata && again.tensors.size() == header.tensors.size(),
          "the header changes when written and read");
  for (const StoredTensor& tensor : header.tensors) {
    const StoredTensor* const other = again.Find(tensor.name);
    Require(other != nullptr && other->shape == tensor.shape && other->type == tensor.type,
            "a tensor changes when written and read");
  }
}

void Check(const std::string& path, uint64_t file_bytes) {
  OrError(path, [&] {
    const SafetensorsReader reader(path);
    CheckHeader(reader, file_bytes);
    (void)StepOf(reader.header().metadata);
    OrError(path, [&] { (void)ConfigOf(reader.header().metadata, path); });
    Arena weights(Network().arena_floats());
    for (const bool skip : {false, true}) {
      OrError(path, [&] {
        const WeightsMatch match =
            LoadWeights(reader, Network(), {.skip_mismatched = skip}, weights.floats());
        RequireFinite(path, Network(), match, weights.floats());
      });
    }
  });
}

}  // namespace fuzz_safetensors
}  // namespace muster::fuzz

FUZZ_TARGET(safetensors) {
  muster::fuzz::SilenceLogs();
  static const muster::fuzz::Folder folder;
  const std::string bytes = muster::fuzz::fuzz_safetensors::FileOf({data, size});
  muster::fuzz::fuzz_safetensors::Check(folder.Write("a.safetensors", bytes), bytes.size());
  return 0;
}
