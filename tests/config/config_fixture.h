// Configs in temporary files.
#pragma once

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/config/config.h"
#include "proto/config.pb.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {

inline constexpr char kModel[] = R"(layer { name: "fc" dense { units: 10 } }
layer { name: "loss" softmax_cross_entropy {} }
)";

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() { Write("model.txtpb", kModel); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
    return dir_ + "/" + name;
  }

  // A valid config with `line` as line 2.
  std::string Config(const std::string& line,
                     const std::string& run = "run { epochs: 2 global_batch: 64 }") {
    return Write("c.txtpb", run + "\n" + line + R"(
data { format: CIFAR10 }
model_file: "model.txtpb"
learning_rate { base: 0.1 }
)");
  }

  // A valid config with the learning rate in line 2.
  std::string Rate(const std::string& settings) {
    return Write("c.txtpb", "run { epochs: 2 global_batch: 64 }\nlearning_rate { base: 0.1 " +
                                settings +
                                " }\ndata { format: CIFAR10 }\nmodel_file: \"model.txtpb\"\n");
  }

  std::string ErrorOf(const std::string& path, const std::vector<std::string>& settings = {}) {
    try {
      std::vector<Setting> parsed;
      for (const std::string& setting : settings) parsed.push_back(ParseSetting(setting));
      LoadConfig(path, parsed);
      return "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
  }

  const TempDir temp_;
  const std::string dir_ = temp_.string();
};

}  // namespace muster::testing
