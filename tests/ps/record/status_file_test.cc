// status.json, as `muster top` reads it.
#include "ps/record/status_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/data/temp_dir.h"

namespace muster {
namespace {

TEST(StatusFileTest, IsReplacedAsAWhole) {
  const testing::TempDir dir;
  const std::string path = dir / "status.json";
  StatusFile status_file(path);
  RunStatus status{.state = "training", .learning_rate = 0.5, .waits = "for \xff"};
  status.progress.mutable_at()->set_step(7);
  status.validated = {.loss = 0.5, .step = 6};  // of values
  status.tested = {.accuracy = 0.25, .loss = 2, .step = 5};
  status.ranks.resize(2);
  status.ranks[1].parts[0] = {3, 4};
  status.slowest = {.rank = 1, .since_step = 5, .straggles = true};
  status_file.Write(status);
  status.state = "completed";
  status_file.Write(status);
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json["state"], "completed");
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["validation_loss"], 0.5);
  EXPECT_FALSE(json.contains("validation_accuracy"));
  EXPECT_EQ(json["test_accuracy"], 0.25);
  EXPECT_FALSE(json.contains("test_loss"));
  EXPECT_EQ(json["server"]["pid"], ::getpid());
  EXPECT_GT(json["server"]["bytes"], 100000);
  EXPECT_EQ(json["ranks"][1]["compute_ms"]["p99"], 4);
  EXPECT_EQ(json["slowest"]["straggles"], true);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

}  // namespace
}  // namespace muster
