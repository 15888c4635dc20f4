#include "launch/model/whole_model.h"

#include <filesystem>

#include "common/base/error.h"
#include "common/base/file_kind.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/model/model_metadata.h"
#include "common/model/whole_file.h"

namespace muster {
namespace {

std::string HowToMend(const SafetensorsReader& file) {
  const std::string run_dir = std::filesystem::path(file.path()).parent_path();
  const auto step = StepOf(file.header().metadata);
  for (const CheckpointName& name : ListCheckpoints(run_dir)) {
    if (step != name.step) continue;
    return fmt::format(
        "{}/{} has the weights of that step: use it in place of the file, or `muster launch "
        "--resume {}`, which writes the file again",
        CheckpointsFolder(run_dir), name.Text(), ShellWord(run_dir));
  }
  return "take another copy of it; if it was changed on purpose, remove contents_hash and "
         "weights_hash from its metadata";
}

}  // namespace

void RequireWholeModel(const SafetensorsReader& file) {
  try {
    RequireWhole(file);
  } catch (const Error& error) {
    throw Error(error.code(), "{}; {}", error.what(), HowToMend(file));
  }
}

}  // namespace muster
