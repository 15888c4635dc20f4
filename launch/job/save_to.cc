#include "launch/job/save_to.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/file_lock.h"
#include "common/base/resource_limits.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/run_mark.h"
#include "launch/job/job_token.h"
#include "launch/runs/save_place.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHint = "choose another directory with --save-to";

// Which file system the nearest folder that is there is on; 0: not known.
dev_t FileSystemOf(fs::path path) {
  struct stat status {};
  while (::stat(path.c_str(), &status) != 0) {
    if (path == path.parent_path()) return 0;
    path = path.parent_path();
  }
  return status.st_dev;
}

bool OnOneFileSystem(const std::string& a, const std::string& b) {
  const dev_t of_a = FileSystemOf(a);
  return of_a != 0 && of_a == FileSystemOf(b);
}

bool IsInside(const fs::path& path, const fs::path& folder) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(path, ignored);
  const fs::path around = fs::weakly_canonical(folder, ignored);
  return std::ranges::mismatch(around, whole).in1 == around.end();
}

// The first thing of a run that lies there; "" if there is none.
std::string FileOfARun(const std::string& folder) {
  std::error_code ignored;
  if (!ListCheckpoints(folder).empty() || !RunIdIn(CheckpointsFolder(folder)).empty())
    return "checkpoints";
  for (const char* const name : kModelFiles) {
    if (fs::exists(fs::path(folder) / name, ignored)) return name;
  }
  // Also the folder of a run's checkpoints, and one of these.
  for (const char* const name :
       {"metrics.jsonl", "repeat.json", "server.log", kRunIdFile, "state.pb"}) {
    if (fs::exists(fs::path(folder) / name, ignored)) return name;
  }
  return "";
}

// Of a run that goes on: whether that is its own.
bool IsOwn(const std::string& file, const RunDir& dir, const config::Config& config) {
  const SavePlace place = PlaceOf(dir, config);
  if (file == "checkpoints" || file == kRunIdFile) {
    const std::string id = RunIdOf(place.folder);
    return HasCheckpointsElsewhere(dir.path(), place) || (!id.empty() && id == place.run_id);
  }
  if (file == "state.pb") return false;
  return std::ranges::find(kModelFiles, file) == std::end(kModelFiles) ||
         !ModelElsewhere(place, file).empty();
}

std::vector<std::string> Missing(const std::string& folder) {
  std::vector<std::string> missing;
  std::error_code ignored;
  for (fs::path path = folder; !fs::exists(fs::symlink_status(path, ignored));
       path = path.parent_path()) {
    missing.insert(missing.begin(), path.string());
  }
  return missing;
}

std::string OfAnotherRun(const std::string& shown, const std::string& file) {
  return fmt::format("{}: the {} of another run {} there: expected a directory for this run alone",
                     shown, file, file == "checkpoints" ? "are" : "is");
}

}  // namespace

std::string UsualSaveTo(const RunDir& dir) {
  const char* const home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/' || ::access(home, W_OK | X_OK) != 0) return "";
  if (OnOneFileSystem(home, dir.path())) return "";
  return fmt::format("{}/muster-saved/{}-{}", home, fs::path(dir.path()).filename().string(),
                     RandomHex(4));
}

SavePlace PlaceOf(const RunDir& dir, const config::Config& config) {
  return {SavePlaceOf(dir.path()).run_dir, config.checkpoint().save_to(), RunIdOf(dir.path())};
}

std::string AskedSaveTo(const std::vector<Setting>& settings) {
  for (const Setting& one : settings) {
    if (one.path == "checkpoint.save_to") return one.origin;
  }
  return "";
}

std::unique_ptr<SaveTo> TakeSaveTo(const std::vector<Setting>& settings, const RunDir& dir,
                                   bool resumed, config::Config& config, std::string& warning) {
  const bool usual = config.checkpoint().save_to().empty();
  if (const std::string place = usual ? UsualSaveTo(dir) : ""; !place.empty()) {
    config.mutable_checkpoint()->set_save_to(place);
  }
  const std::string asked = AskedSaveTo(settings);
  try {
    auto save_to = std::make_unique<SaveTo>(
        config, dir, SaveTo::How{.asked = asked, .resumed = resumed, .usual = usual});
    warning = save_to->warning();
    return save_to;
  } catch (const Error& error) {
    if (!resumed || !asked.empty()) throw;
    warning = fmt::format("{}; the run goes on without it", error.what());
    return nullptr;
  }
}

void CheckSaveToIsFree(const std::string& folder, const std::string& shown) {
  const std::string file = FileOfARun(folder);
  if (file.empty()) return;
  throw Error(ExitCode::kUsage, "{}; {}", OfAnotherRun(shown, file), kHint);
}

SaveTo::SaveTo(const config::Config& config, const RunDir& dir, const How& how)
    : folder_(config.checkpoint().save_to()),
      shown_(how.asked.empty() ? "checkpoint.save_to " + folder_ : how.asked) {
  if (folder_.empty()) return;
  if (how.usual) {
    made_ = Missing(folder_);
    return;
  }
  try {
    Check(config, dir, how.resumed);
  } catch (const Error&) {
    RemoveIfEmpty();
    throw;
  }
}

void SaveTo::Check(const config::Config& config, const RunDir& dir, bool resumed) {
  if (IsInside(folder_, dir.path())) {
    Refuse(
        "this is the run directory, or in it: what cannot be written there cannot be written "
        "here either");
  }
  Make();
  const std::string file = FileOfARun(folder_);
  if (!file.empty() && !(resumed && IsOwn(file, dir, config))) {
    throw Error(ExitCode::kUsage, "{}; {}", OfAnotherRun(shown_, file), kHint);
  }
  Lock();
  Probe(resumed);
  if (!warning_.empty() || !OnOneFileSystem(folder_, dir.path())) return;
  warning_ = shown_ + " is on the file system of the run directory: when that is full, both are";
}

SaveTo::~SaveTo() { RemoveIfEmpty(); }

void SaveTo::Refuse(const std::string& why) const {
  throw Error(ExitCode::kUsage, "{}: {}; {}", shown_, why, kHint);
}

void SaveTo::Make() {
  for (const std::string& path : Missing(folder_)) {
    if (::mkdir(path.c_str(), 0777) == 0) {
      made_.push_back(path);
    } else if (errno != EEXIST) {
      const int error = errno;
      Refuse(fmt::format("cannot be made: {}: {}", path, ErrorText(error)));
    }
  }
  std::error_code ignored;
  if (fs::is_directory(folder_, ignored)) return;
  Refuse("expected a directory, or nothing, found a file");
}

// The room for a byte, not for a run: how much that will be, and what is free by then, is not known
// yet.
void SaveTo::Probe(bool resumed) {
  const std::string path = fmt::format("{}/.muster-probe-{}", folder_, RandomHex(4));
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool written = fd.valid() && ::write(fd.get(), "x", 1) == 1 && ::fsync(fd.get()) == 0;
  const int error = errno;
  if (fd.valid()) ::unlink(path.c_str());
  if (written) return;
  const std::string why = fmt::format("cannot be written: {}", ErrorText(error));
  // What a run that goes on has there is needed all the same.
  if (!resumed || (error != ENOSPC && error != EDQUOT)) Refuse(why);
  warning_ = fmt::format("{}: {}", shown_, why);
}

void SaveTo::Lock() {
  lock_.Reset(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_.valid()) Refuse("cannot be opened: " + ErrorText(errno));
  if (TryLock(lock_.get()) == Locked::kTaken) {
    Refuse("another run that is under way has it as its own");
  }
}

// What the server has begun there and could not write counts for nothing.
void SaveTo::RemoveIfEmpty() noexcept {
  if (folder_.empty()) return;
  std::error_code ignored;
  const fs::path checkpoints = CheckpointsFolder(folder_);
  if (!made_.empty() && ListCheckpoints(folder_).empty()) {
    fs::remove(checkpoints / kRunIdFile, ignored);
    fs::remove(checkpoints, ignored);
  }
  for (auto path = made_.rbegin(); path != made_.rend(); ++path) ::rmdir(path->c_str());
}

}  // namespace muster
