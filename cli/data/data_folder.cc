#include "cli/data/data_folder.h"

#include <fcntl.h>

#include <cerrno>
#include <system_error>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"
#include "worker/data/cifar10.h"

namespace muster {
namespace fs = std::filesystem;
namespace {

void RequireMade(const fs::path& folder, const std::error_code& error) {
  if (!error) return;
  throw Error(ExitCode::kFailure, "{}: cannot create this directory: {}", folder.string(),
              error.message());
}

}  // namespace

UniqueFd LockDataFolder(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  RequireMade(dir, error);
  UniqueFd folder(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) {
    throw Error(ExitCode::kFailure, "{}: cannot open this directory: {}", dir.string(),
                ErrorText(errno));
  }
  // On file systems without locks, continue without one.
  if (TryLock(folder.get()) == Locked::kTaken) {
    throw Error(ExitCode::kFailure,
                "{}: another Muster process is writing a data set here. Wait for it, or stop it.",
                dir.string());
  }
  return folder;
}

fs::path ExistingCifar10(const fs::path& dir) {
  if (fs::exists(dir / kCifar10TrainFiles[0]) || fs::exists(dir / kCifar10TestFile)) return dir;
  fs::path folder = dir / kCifar10Folder;
  if (!fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder))) return {};
  return folder;
}

void StageFolder(const fs::path& target, const std::function<void(const fs::path&)>& fill) {
  const fs::path staging =
      target.parent_path() / ("." + target.filename().string() + ".unfinished");
  std::error_code error;
  fs::remove_all(staging, error);
  if (!error) fs::create_directory(staging, error);
  RequireMade(staging, error);
  try {
    fill(staging);
    fs::rename(staging, target);
  } catch (...) {
    std::error_code ignored;  // the next call tries again
    fs::remove_all(staging, ignored);
    throw;
  }
  SyncFolderOf(target);
}

}  // namespace muster
