#include "common/checkpoint/list_checkpoints.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "common/base/error.h"

namespace muster {
namespace fs = std::filesystem;

std::string CheckpointFolder(const std::string& run_dir, const CheckpointName& name) {
  return CheckpointsFolder(run_dir) + "/" + name.Text();
}

std::vector<CheckpointName> ListCheckpoints(const std::string& run_dir) {
  std::vector<CheckpointName> names;
  std::error_code error;
  for (fs::directory_iterator at(CheckpointsFolder(run_dir), error), end; !error && at != end;
       at.increment(error)) {
    if (const auto name = ParseCheckpointName(at->path().filename())) names.push_back(*name);
  }
  if (error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory) {
    throw Error(ExitCode::kData, "{}: cannot be read: {}", CheckpointsFolder(run_dir),
                error.message());
  }
  std::ranges::sort(names, std::greater());
  return names;
}

ChosenCheckpoint ChooseCheckpoint(const std::string& run_dir) {
  ChosenCheckpoint chosen;
  for (const CheckpointName& name : ListCheckpoints(run_dir)) {
    try {
      auto reader = std::make_unique<CheckpointReader>(CheckpointFolder(run_dir, name));
      reader->Verify();
      chosen.reader = std::move(reader);
      chosen.name = name;
      return chosen;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) throw;
      chosen.damaged.push_back({name, error.what()});
    }
  }
  return chosen;
}

checkpoint::State NewestState(const std::string& run_dir) {
  std::vector<DamagedCheckpoint> damaged;
  for (const CheckpointName& name : ListCheckpoints(run_dir)) {
    try {
      return CheckpointReader(CheckpointFolder(run_dir, name)).state();
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) throw;
      damaged.push_back({name, error.what()});
    }
  }
  NoCheckpoint(run_dir, damaged);
}

void NoCheckpoint(const std::string& run_dir, const std::vector<DamagedCheckpoint>& damaged) {
  if (damaged.empty()) {
    throw Error(ExitCode::kData,
                "{} holds no checkpoint (expected some in {}): there is nothing to resume", run_dir,
                CheckpointsFolder(run_dir));
  }
  std::string text = fmt::format("{} holds no intact checkpoint:", run_dir);
  for (const DamagedCheckpoint& one : damaged) text += fmt::format(" {};", one.why);
  text.back() = '.';
  throw Error(ExitCode::kData, "{} Nothing was changed", text);
}

}  // namespace muster
