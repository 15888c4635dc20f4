#include "launch/model/model_source.h"

#include <filesystem>
#include <fstream>

#include "common/base/error.h"
#include "common/model/model_metadata.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string FileOf(const std::string& from, const ModelChoice& choice) {
  std::error_code ignored;
  const bool folder = fs::is_directory(from, ignored);
  if (choice.best) {
    if (!folder) {
      throw Error(ExitCode::kUsage, "--best: {} is a file; expected a run directory", from);
    }
    return from + "/best.safetensors";
  }
  if (!folder) return from;
  // The average is the product of a run that evaluates it.
  const std::string beside = from + "/model-ema.safetensors";
  return choice.average && fs::exists(beside, ignored) ? beside : from + "/model.safetensors";
}

}  // namespace

SafetensorsReader OpenModel(const std::string& from, const ModelChoice& choice) {
  const std::string path = FileOf(from, choice);
  SafetensorsReader file(path);
  if (choice.average && !IsAverage(file.header().metadata)) {
    throw Error(ExitCode::kUsage,
                "--ema: {} is no moving average: its run had no optimizer.ema_decay, or this file "
                "holds the weights themselves",
                path);
  }
  return file;
}

bool IsModel(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return true;
  if (path.ends_with(".safetensors")) return true;
  // The length of a header, and the header: no text has zeros.
  std::string first(9, ' ');
  std::ifstream file(path, std::ios::binary);
  return file.read(first.data(), 9) && first[7] == '\0' && first[8] == '{';
}

}  // namespace muster
