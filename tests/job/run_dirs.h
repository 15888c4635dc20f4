// Run directories for tests that resume runs.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "proto/config.pb.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {

class RunDirs : public ::testing::Test {
 protected:
  // Creates a new, empty one.
  std::string NewRun() {
    const std::filesystem::path dir = dir_ / std::to_string(runs_++);
    std::filesystem::create_directory(dir);
    return dir;
  }

 private:
  const TempDir dir_;
  int runs_ = 0;
};

// `config` with settings in protobuf's text format.
inline config::Config With(config::Config config, const std::string& settings) {
  config::Config more;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(settings, &more)) << settings;
  config.MergeFrom(more);
  return config;
}

}  // namespace muster::testing
