// `muster export`: what comes out holds what went in.
#include <gtest/gtest.h>

#include <numeric>

#include "common/tensors/safetensors_writer.h"
#include "launch/model/export_command.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

// Tensors are copied block by block: one that is larger than a block, and one that has no elements.
TEST(ExportTest, TensorsOfEverySize) {
  const TempDir dir;
  const std::string from = (dir / "from.safetensors").string(), out = (dir / "out").string();
  std::vector<float> large((4 << 20) + 3);
  std::iota(large.begin(), large.end(), 0.F);
  {
    SafetensorsWriter writer(
        from, LayOutSafetensors(
                  {{.name = "large", .shape = {std::ssize(large)}}, {.name = "none", .shape = {0}}},
                  {{"step", "7"}}));
    writer.Write(std::as_bytes(std::span(large)));
    writer.Commit();
  }
  (void)ExportModel({.from = from, .format = "safetensors", .out = out});
  EXPECT_EQ(ReadBytes(out), ReadBytes(from));

  const std::string npz = (dir / "out.npz").string();
  (void)ExportModel({.from = from, .format = "npz", .out = npz});
  EXPECT_GT(std::filesystem::file_size(npz), large.size() * sizeof(float));
}

}  // namespace
}  // namespace muster::testing
