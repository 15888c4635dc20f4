#include "launch/job/save_to.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "common/base/error.h"
#include "common/base/file_lock.h"
#include "common/base/resource_limits.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/run_mark.h"
#include "common/checkpoint/saved_for.h"
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

std::vector<std::string> Missing(const std::string& folder) {
  std::vector<std::string> missing;
  std::error_code ignored;
  for (fs::path path = folder; !fs::exists(fs::symlink_status(path, ignored));
       path = path.parent_path()) {
    missing.insert(missing.begin(), path.string());
  }
  return missing;
}

std::string OfAnotherRun(const std::string& shown, const std::string& folder,
                         const std::string& thing) {
  const std::optional<SavedFor> mark = SavedForIn(folder);
  return fmt::format(
      "{}: the {} of another run {} there{}: expected a directory for this run alone", shown, thing,
      thing == "checkpoints" ? "are" : "is",
      mark ? fmt::format(" (of the one in {})", mark->run_dir) : "");
}

void CheckIsOutside(const std::string& folder, const std::string& shown,
                    const std::string& run_dir) {
  if (!IsInside(folder, run_dir)) return;
  throw Error(ExitCode::kUsage,
              "{}: this is the run directory, or in it: what cannot be written there cannot be "
              "written here either; {}",
              shown, kHint);
}

}  // namespace

std::string UsualSaveTo(const RunDir& dir) {
  const char* const home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/' || ::access(home, W_OK | X_OK) != 0) return "";
  if (OnOneFileSystem(home, dir.path())) return "";
  return fmt::format("{}/muster-saved/{}-{}", home, fs::path(dir.path()).filename().string(),
                     RandomHex(4));
}

std::string AskedSaveTo(const std::vector<Setting>& settings) {
  for (const Setting& one : settings) {
    if (one.path == "checkpoint.save_to") return one.origin;
  }
  return "";
}

std::unique_ptr<SaveTo> TakeSaveTo(const std::vector<Setting>& settings, const RunDir& dir,
                                   bool resumed, config::Config& config, std::string& warning) {
  const std::string asked = AskedSaveTo(settings);
  std::string without;
  if (const std::string& folder = config.checkpoint().save_to(); resumed && asked.empty()) {
    if (const std::string whose = WhoseElsewhere({dir.path(), folder}); !whose.empty()) {
      without = fmt::format("checkpoint.save_to {}: has files of {}; this run goes on without it",
                            folder, whose);
      config.mutable_checkpoint()->clear_save_to();
    }
  }
  const bool usual = config.checkpoint().save_to().empty();
  if (const std::string place = usual ? UsualSaveTo(dir) : ""; !place.empty()) {
    config.mutable_checkpoint()->set_save_to(place);
  }
  try {
    auto save_to = std::make_unique<SaveTo>(
        config, dir, SaveTo::How{.asked = asked, .resumed = resumed, .usual = usual});
    warning = without.empty() ? save_to->warning() : without;
    return save_to;
  } catch (const Error& error) {
    if (!resumed || !asked.empty()) throw;
    warning = fmt::format("{}; the run goes on without it", error.what());
    return nullptr;
  }
}

void CheckSaveToIsFree(const std::string& folder, const std::string& shown) {
  const std::string thing = ThingOfARunIn(folder);
  if (thing.empty()) return;
  throw Error(ExitCode::kUsage, "{}; {}", OfAnotherRun(shown, folder, thing), kHint);
}

void CheckSaveTo(const config::Config& config, const std::vector<Setting>& settings) {
  if (config.checkpoint().save_to().empty()) return;
  const std::string folder = fs::absolute(config.checkpoint().save_to()).lexically_normal();
  const std::string asked = AskedSaveTo(settings);
  const std::string shown = asked.empty() ? "checkpoint.save_to " + folder : asked;
  if (config.run().has_dir()) CheckIsOutside(folder, shown, config.run().dir());
  CheckSaveToIsFree(folder, shown);
  const std::vector<std::string> missing = Missing(folder);
  const fs::path there =
      missing.empty() ? fs::path(folder) : fs::path(missing.front()).parent_path();
  std::error_code ignored;
  if (!fs::is_directory(there, ignored)) {
    throw Error(ExitCode::kUsage, "{}: expected a directory, or nothing, found a file: {}; {}",
                shown, there.string(), kHint);
  }
  if (::access(there.c_str(), W_OK | X_OK) == 0) return;
  const int error = errno;
  throw Error(ExitCode::kUsage, "{}: cannot be {}: {}; {}", shown,
              missing.empty() ? "written" : "made", ErrorText(error), kHint);
}

SaveTo::SaveTo(const config::Config& config, const RunDir& dir, const How& how)
    : folder_(config.checkpoint().save_to()),
      shown_(how.asked.empty() ? "checkpoint.save_to " + folder_ : how.asked) {
  if (folder_.empty()) return;
  if (how.usual) {
    made_ = Missing(folder_);
    taken_ = true;  // no other run has this name
    return;
  }
  try {
    Check(dir, how.resumed);
  } catch (const Error&) {
    RemoveIfEmpty();
    throw;
  }
}

void SaveTo::Check(const RunDir& dir, bool resumed) {
  CheckIsOutside(folder_, shown_, dir.path());
  Make();
  if (!resumed || !KeepsThingsOf(dir.path(), folder_)) CheckSaveToIsFree(folder_, shown_);
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
  taken_ = true;
}

// What the server has begun there and could not write counts for nothing.
void SaveTo::RemoveIfEmpty() noexcept {
  if (folder_.empty()) return;
  std::error_code ignored;
  const fs::path checkpoints = CheckpointsFolder(folder_);
  const bool is_marked = taken_ && SavedForIn(folder_).has_value();
  if ((is_marked || !made_.empty()) && ListCheckpoints(folder_).empty()) {
    fs::remove(checkpoints / kRunIdFile, ignored);
    fs::remove(checkpoints, ignored);
  }
  if (is_marked && ThingOfARunIn(folder_).empty()) {
    fs::remove(fs::path(folder_) / kSavedForFile, ignored);
  }
  for (auto path = made_.rbegin(); path != made_.rend(); ++path) ::rmdir(path->c_str());
}

}  // namespace muster
