#include "cli/job/run_dir.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/run_mark.h"
#include "common/events/event_log.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr int kMostPerSecond = 10000;
constexpr int kMostLevels = 3;  // of folders in a run directory

[[noreturn]] void CannotCreate(const std::string& path, int error) {
  const char* hint = "choose another place with --run-dir";
  if (error == ENOSPC || error == EDQUOT)
    hint = "free some space, or choose another place with --run-dir";
  if (error == ENOTDIR || error == EEXIST)
    hint = "a part of this path is a file: choose another with --run-dir";
  throw Error(ExitCode::kUsage, "cannot create the run directory {}: {}; {}", path,
              ErrorText(error), hint);
}

// Creates the directory and its missing parents. Returns whether the directory is new.
bool MakeDirectories(const std::string& path) {
  std::error_code error;
  bool created = fs::create_directories(path, error);
  if (error) CannotCreate(path, error.value());
  return created;
}

std::string TimeStamp(std::time_t now) {
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return text;
}

// Whether a run in this directory has begun. metrics.jsonl can be restored from run.events.
bool HasMetrics(const fs::path& dir) {
  const fs::path metrics = dir / "metrics.jsonl";
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(metrics, ignored))) {
    const auto bytes = fs::file_size(dir / kEventLog, ignored);
    return !ignored && bytes > kFirstRecord;
  }
  return !fs::is_regular_file(fs::symlink_status(metrics, ignored)) ||
         fs::file_size(metrics, ignored) > 0;
}

bool HoldsRun(const fs::path& dir) {
  std::error_code ignored;
  // Other programs also write a metrics.jsonl.
  return (fs::exists(dir / "config.txtpb", ignored) && HasMetrics(dir)) ||
         !ListCheckpoints(dir).empty();
}

// In another run's directory, the new run could replace its files. In its checkpoints/, the new
// run's run_id would stop the other run from writing checkpoints.
void RefuseInsideRun(const std::string& path) {
  std::error_code error;
  fs::path around = fs::weakly_canonical(fs::absolute(path), error);
  if (error) return;  // creating the directory reports it
  if (!around.has_filename()) around = around.parent_path();
  for (int level = 0; level < kMostLevels; ++level) {
    around = around.parent_path();
    if (!HoldsRun(around)) continue;
    throw Error(ExitCode::kUsage,
                "the run directory {} is inside the directory of another run, {}; choose another "
                "with --run-dir",
                path, around.native());
  }
}

// What a run writes into its directory.
constexpr const char* kOfRun =
    "^(config\\.txtpb|repeat\\.json|metrics\\.jsonl|run\\.events(\\.damaged)?|status\\.json|run_id|"
    "confusion_matrix\\.csv|checkpoints|"
    "(model|best|model-raw|model-ema)\\.safetensors|(server|srun|ssh|worker-[0-9]+)\\.log|"
    "trace\\.(server|worker-[0-9]+)\\.part|events\\.out\\.tfevents\\.[0-9]+\\..*)$";

// A folder of data or of other runs, which would be confused with the run.
void RefuseFolders(const std::string& path) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename();
    const bool of_system = name.starts_with('.') || name == "lost+found";
    const bool of_run = name.starts_with("attempt-") || !FirstMatch(kOfRun, name).empty();
    if (of_system || of_run || !entry.is_directory(ignored)) continue;
    throw Error(ExitCode::kUsage,
                "the run directory {} has other folders, such as {}; choose another with --run-dir",
                path, Shown(name));
  }
}

void RefuseUsed(const std::string& path) {
  const bool metrics = HasMetrics(path);
  // A run that was killed before its first line has neither metrics nor checkpoints.
  if (!metrics && ListCheckpoints(path).empty()) return;
  throw Error(ExitCode::kUsage,
              "the run directory {} already holds the {} of another run; resume that run with "
              "--resume {}, choose another directory with --run-dir, or move that run away",
              path, metrics ? "metrics.jsonl" : "checkpoints", path);
}

}  // namespace

RunDir::RunDir(std::string shown, bool created, bool goes_on)
    : path_(fs::absolute(shown).lexically_normal()), shown_(std::move(shown)), created_(created) {
  if (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  if (!created_) {
    RequireTrustedFolder("the run directory", path_);
    RequireTrustedFolder("the checkpoint folder", CheckpointsFolder(path_));
  }
  if (::access(path_.c_str(), W_OK | X_OK) != 0) {
    const std::string why = ErrorText(errno);
    throw Error(
        ExitCode::kUsage, "cannot write into the run directory {}: {}; {}", shown_, why,
        goes_on ? "copy the run (cp -r) and resume the copy" : "choose another with --run-dir");
  }
  // Others get the lock even if this process crashes.
  lock_ = std::make_unique<FileLock>(LockPath(), LockTerms());
  if (lock_->held()) return;
  throw Error(ExitCode::kUsage,
              "the run directory {} is in use by another muster launch ({}); wait for it{}", shown_,
              lock_->holder(), goes_on ? "" : ", or choose another with --run-dir");
}

RunDir RunDir::CreateNew(const std::string& parent, const std::string& name, std::time_t now) {
  MakeDirectories(parent);
  std::string base = parent + "/" + name + "-" + TimeStamp(now);
  for (int attempt = 1; attempt <= kMostPerSecond; ++attempt) {
    std::string path = attempt == 1 ? base : base + "-" + std::to_string(attempt);
    if (::mkdir(path.c_str(), 0777) == 0) return RunDir(path, true);
    if (errno != EEXIST) CannotCreate(path, errno);
  }
  CannotCreate(base, EEXIST);
}

RunDir RunDir::Make(const std::string& asked, const std::string& config_path) {
  if (asked.empty()) return CreateNew("runs", RunName(config_path), std::time(nullptr));
  RefuseInsideRun(asked);
  RefuseFolders(asked);
  return Open(asked);
}

RunDir RunDir::Open(const std::string& path) {
  bool created = MakeDirectories(path);
  RunDir dir(path, created);
  RefuseUsed(path);  // under the lock, so that no launcher can start a run meanwhile
  std::error_code ignored;
  fs::remove(dir.MetricsPath(), ignored);                  // empty, if it exists
  fs::remove(fs::path(dir.path()) / kRunIdFile, ignored);  // left by a run that was moved away
  return dir;
}

RunDir RunDir::Resume(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    throw Error(ExitCode::kUsage, "--resume {}: expected the directory of a run, found {}", path,
                fs::exists(path, ignored) ? "a file" : "nothing");
  }
  return {path, false, /*goes_on=*/true};
}

void RunDir::CheckUnused(const std::string& path) {
  RefuseInsideRun(path);
  RefuseFolders(path);
  RefuseUsed(path);
}

std::string RunDir::WorkerLogPath(int rank) const {
  return fmt::format("{}/worker-{}.log", path_, rank);
}

std::vector<std::string> RunDir::MissingFiles(int workers, const events::Summary& summary) const {
  std::vector<std::string> missing{"config.txtpb", "metrics.jsonl", kEventLog, "server.log"};
  for (int rank = 0; rank < workers; ++rank) missing.push_back(fmt::format("worker-{}.log", rank));
  for (const auto& model : summary.models()) missing.push_back(model.file());
  std::erase_if(missing, [this](const std::string& name) {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(fs::path(path_) / name, ignored));
  });
  return missing;
}

bool RunDir::IsUsed() const { return HasMetrics(path_); }

std::vector<std::string> RunDir::TraceParts(int workers) const {
  std::vector<std::string> parts{path_ + "/trace.server.part"};
  for (int rank = 0; rank < workers; ++rank) {
    parts.push_back(fmt::format("{}/trace.worker-{}.part", path_, rank));
  }
  return parts;
}

bool RunDir::Follow() {
  const fs::path now = fs::path(lock_->PathNow()).parent_path();
  std::error_code ignored;
  if (now.empty() || !fs::is_directory(now, ignored) || fs::equivalent(now, path_, ignored)) {
    return false;
  }
  path_ = now;
  shown_ = now;
  return true;
}

void RunDir::ForgetAttempt() const {
  for (const fs::path& path :
       {fs::path(MetricsPath()), fs::path(CheckpointsFolder(path_)) / kRunIdFile}) {
    std::error_code error;
    fs::remove(path, error);
    if (error && error != std::errc::not_a_directory) {
      throw Error(ExitCode::kUsage, "cannot remove {}: {}", path.native(), error.message());
    }
  }
}

void RunDir::Discard() {
  if (!created_) return;
  std::error_code ignored;
  for (const std::string& file :
       {ConfigPath(), ServerLogPath(), TokenPath(), path_ + "/" + kEventLog})
    fs::remove(file, ignored);
  for (const std::string& lock : {LockPath(), ServerLockPath()}) FileLock::Remove(lock);
  fs::remove(path_, ignored);  // fails if there are other files
}

std::string RunName(const std::string& config_path) {
  fs::path path = fs::absolute(config_path).lexically_normal();
  if (path.filename() == "config.txtpb") {
    std::string parent = path.parent_path().filename();
    const std::vector<std::string> dated = FirstMatch("^(.+)-[0-9]{8}-[0-9]{6}(-[0-9]+)?$", parent);
    if (!dated.empty()) return dated[1];
    if (!parent.empty()) return parent;
  }
  std::string stem = path.stem();
  return stem.empty() ? "run" : stem;
}

std::string PutAside(const RunDir& dir, const std::string& input) {
  const fs::path checkpoints = CheckpointsFolder(dir.path());
  std::error_code error, ignored;
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir.path(), error)) {
    const std::string name = entry.path().filename();
    if (FirstMatch(kOfRun, name).empty()) continue;
    if (!input.empty() && fs::equivalent(entry.path(), input, ignored)) continue;
    // A symbolic link to another place for checkpoints stays.
    if (entry.path() != checkpoints || !entry.is_symlink()) paths.push_back(entry.path());
  }
  fs::path aside;
  for (int attempt = 1; aside.empty() || fs::exists(fs::symlink_status(aside)); ++attempt) {
    aside = fs::path(dir.path()) / fmt::format("attempt-{}", attempt);
  }
  if (!error) fs::create_directory(aside, error);
  for (const fs::path& path : paths) {
    if (error) break;
    fs::rename(path, aside / path.filename(), error);
    if (error == std::errc::device_or_resource_busy && fs::is_directory(path)) error.clear();
  }
  if (error) {
    throw Error(ExitCode::kUsage, "{}: cannot archive the run that left no checkpoint: {}",
                dir.shown(), error.message());
  }
  // A checkpoint folder that stays, because it is a link or a mount point, has no checkpoints but
  // still a run id.
  fs::remove(checkpoints / kRunIdFile, ignored);
  return aside.filename();
}

}  // namespace muster
