// Damage to any part of a weight file is detected. Files of other programs are accepted.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "common/base/error.h"
#include "common/config/config.h"
#include "common/model/hash_variables.h"
#include "common/model/load_weights.h"
#include "common/model/write_model.h"
#include "common/tensors/safetensors_reader.h"
#include "common/tensors/safetensors_writer.h"
#include "proto/config.pb.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_dir.h"
#include "tests/model/small_graph.h"

namespace muster::testing {
namespace whole_file_test {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const char kLayers[] = R"(
    layer { name: "stem/conv" conv2d { filters: 4 kernel: 3 } }
    layer { name: "stem/norm" batch_norm {} }
    layer { name: "fc" dense { units: 5 } })";
constexpr Shape kInput{6, 5, 3};

class WholeFileTest : public ::testing::Test {
 protected:
  WholeFileTest() {
    const Graph graph = SmallGraph(kLayers, kInput);
    WriteModel(path_, graph, Counted(graph), /*updates=*/77, {{"format", "pt"}, {"step", "77"}});
    bytes_ = ReadBytes(path_);
  }
  // Copies the file with these metadata, using a writer that assigns positions to tensors.
  void Rewrite(std::vector<StoredTensor> tensors, const Metadata& metadata) const {
    const SafetensorsReader file(path_);
    const SafetensorsHeader header = LayOutSafetensors(std::move(tensors), metadata);
    std::string bytes = HeaderBytes(header);
    for (const StoredTensor& tensor : header.tensors) {
      std::string one(tensor.bytes(), '\0');
      file.ReadBytes(*file.header().Find(tensor.name), std::as_writable_bytes(std::span(one)));
      bytes += one;
    }
    WriteBytes(other_, bytes);
  }

  const TempDir dir_;
  const std::string path_ = dir_ / "model.safetensors", other_ = dir_ / "other.safetensors";
  std::string bytes_;
};

TEST_F(WholeFileTest, EveryFlipIsNoticed) {
  EXPECT_EQ(DamageOf(path_), "");
  const size_t key = bytes_.find(kContentsHash), tensors = bytes_.size() - 4 * 5;
  for (size_t i = 0; i < bytes_.size(); i += i < 1000 || i > tensors ? 1 : 7) {
    if (i >= key && i < key + std::string(kContentsHash).size())
      continue;  // without the key there is no hash
    std::string flipped = bytes_;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    WriteBytes(other_, flipped);
    ASSERT_THAT(DamageOf(other_), HasSubstr(other_)) << i;
  }
}

TEST_F(WholeFileTest, WhatWasExpectedAndWhatIsThereIsNamed) {
  std::string flipped = bytes_;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  WriteBytes(other_, flipped);
  const SafetensorsReader file(other_);
  const std::string damage = DamageOf(other_);
  EXPECT_THAT(damage, AllOf(HasSubstr("is damaged"), EndsWith("got " + ContentsHashOf(file)),
                            HasSubstr(file.header().metadata.at(kContentsHash))));
  // Only the error has advice, because --resume itself repairs what is damaged.
  EXPECT_MUSTER_ERROR(RequireWhole(file), ExitCode::kData,
                      AllOf(StartsWith(damage + "; "), HasSubstr("--resume RUN_DIR")));
}

// Like a program that reads and rewrites the file.
TEST_F(WholeFileTest, TheOrderOfTensorsIsFree) {
  const SafetensorsHeader header = SafetensorsReader(path_).header();
  std::vector<StoredTensor> tensors = header.tensors;
  std::ranges::reverse(tensors);
  Rewrite(tensors, header.metadata);
  EXPECT_NE(ReadBytes(other_), bytes_);
  EXPECT_EQ(DamageOf(other_), "");
  tensors.pop_back();
  Rewrite(tensors, header.metadata);
  EXPECT_THAT(DamageOf(other_), HasSubstr("is damaged or was changed"));
}

TEST_F(WholeFileTest, FilesOfOthersPass) {
  Rewrite(SafetensorsReader(path_).header().tensors, {{"format", "pt"}});
  EXPECT_EQ(DamageOf(other_), "");
}

// Files of old versions only had the hash of the weights.
TEST_F(WholeFileTest, TheHashOfTheWeightsCountsWhereThereIsNoOther) {
  const std::string config_path = dir_ / "config.txtpb";
  WriteBytes(config_path, std::string(R"(
      run { steps: 9 global_batch: 16 slices: 1 }
      data { format: SYNTHETIC synthetic { height: 6 width: 5 classes: 5 } }
      model { name: "tiny")") +
                              kLayers + R"( layer { name: "loss" softmax_cross_entropy {} } }
      learning_rate { base: 0.1 })");
  config::Config config = LoadConfig(config_path, {});
  ResolveConfig(config, 1);
  const Graph graph = SmallGraph(kLayers, kInput);
  const uint64_t hash = HashVariables(graph.layout(), Counted(graph));
  const auto tensors = SafetensorsReader(path_).header().tensors;
  Rewrite(tensors, ModelMetadata(config, graph, {.weights_hash = hash}));
  EXPECT_EQ(DamageOf(other_), "");
  Rewrite(tensors, ModelMetadata(config, graph, {.weights_hash = hash + 1}));
  EXPECT_THAT(DamageOf(other_),
              AllOf(HasSubstr("weights_hash"), HasSubstr(fmt::format("{:016x}", hash))));
}

}  // namespace whole_file_test
}  // namespace muster::testing
