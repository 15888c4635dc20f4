#include "tests/cli/view/run_files.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <fstream>

#include "common/base/records.h"
#include "common/events/event_log.h"

namespace muster::testing {
namespace {

constexpr const char* kTime = "\"time\":\"2026-01-31T12:00:10.500Z\"";

std::string Measured(int step, double loss) {
  return fmt::format(
      "{{{},\"elapsed_s\":{},\"step\":{},\"epoch\":{},\"learning_rate\":0.1,\"train_loss\":{},"
      "\"train_accuracy\":0.5,\"images_per_second\":1000",
      kTime, step, step, step / 10.0, loss);
}

}  // namespace

void RunFiles::Write(const std::string& path, const std::string& text) {
  std::ofstream(dir_ / path) << text;
}

void RunFiles::WriteStatus(const std::string& name, const std::string& status) {
  events::Status page;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(status, &page));
  Write(name + "/" + kEventLog, FrameRecord(page.SerializeAsString()));
}

std::string RunFiles::MakeRun(const std::string& name, const std::vector<std::string>& metrics) {
  std::filesystem::create_directories(dir_ / name);
  Write(name + "/config.txtpb", "");
  Write(name + "/server.log", "");
  std::string text;
  for (const std::string& line : metrics) text += line + "\n";
  if (!metrics.empty()) Write(name + "/metrics.jsonl", text);
  return dir_ / name;
}

std::string IntervalText(int step, double loss) { return Measured(step, loss) + "}"; }

std::string EvaluationText(int step, double accuracy) {
  return Measured(step, 1) +
         fmt::format(",\"test_loss\":{},\"test_accuracy\":{}}}", 1 - accuracy, accuracy);
}

std::string ValidationText(int step, double accuracy) {
  return Measured(step, 1) + fmt::format(",\"validation_loss\":{},\"validation_accuracy\":{}}}",
                                         1 - accuracy, accuracy);
}

std::string LossText(int step, const std::string& set, double loss) {
  return Measured(step, 1) + fmt::format(",\"{}_loss\":{},\"{}_accuracy\":null}}", set, loss, set);
}

std::string FinalText(int step, const std::string& reason) {
  return Measured(step, 0.5) +
         fmt::format(
             ",\"total_steps\":100,\"ranks\":[{{}},{{}}],\"final\":true,\"reason\":\"{}\","
             "\"weights_hash\":\"00112233445566ff\"}}",
             reason);
}

}  // namespace muster::testing
