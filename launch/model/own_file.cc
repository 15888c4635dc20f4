#include "launch/model/own_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "common/base/error.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/run_mark.h"
#include "common/model/model_metadata.h"
#include "common/tensors/safetensors_reader.h"
#include "launch/runs/run_record.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNames[] = {
    ".launcher.lock",    ".server.lock",          "best.safetensors",
    "config.txtpb",      "confusion_matrix.csv",  "metrics-cut.jsonl",
    "metrics.jsonl",     "model-ema.safetensors", "model-raw.safetensors",
    "model.safetensors", "repeat.json",           "run_id",
    "server.log",        "status.json",           "token"};

bool IsWrittenByRuns(const fs::path& relative) {
  const std::string first = *relative.begin();
  if (std::next(relative.begin()) != relative.end()) {
    return first == "checkpoints" || first.starts_with("attempt-");
  }
  std::string_view name = first;
  if (name.ends_with(".partial")) name.remove_suffix(std::string_view(".partial").size());
  return std::ranges::find(kNames, name) != std::end(kNames) || name == "checkpoints" ||
         name.starts_with("events.out.tfevents.") ||
         (name.starts_with("worker-") && name.ends_with(".log")) ||
         (name.starts_with("trace.") && name.ends_with(".part"));
}

// `path` has no links in it.
std::optional<std::string> RunAround(const fs::path& path) {
  for (fs::path dir = path.parent_path(); dir != dir.root_path(); dir = dir.parent_path()) {
    if (IsWrittenByRuns(path.lexically_relative(dir)) && HoldsRun(dir)) return dir;
  }
  return std::nullopt;
}

// The run that a file of weights is of, as it says itself.
std::string RunNamedIn(const std::string& path) {
  try {
    const auto config = ConfigOf(SafetensorsReader(path).header().metadata, path);
    return config ? config->run().dir() : "";
  } catch (const Error&) {  // no file of weights
    return "";
  }
}

// Whether one of the run's files is this one, by another name.
bool HasFile(const fs::path& dir, const struct stat& wanted) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(dir, error), end; !error && at != end;
       at.increment(error)) {
    struct stat status {};
    if (::stat(at->path().c_str(), &status) == 0 && status.st_ino == wanted.st_ino &&
        status.st_dev == wanted.st_dev && IsWrittenByRuns(at->path().lexically_relative(dir))) {
      return true;
    }
  }
  return false;
}

std::optional<std::string> RunWithOtherName(const std::string& path,
                                            std::vector<std::string> known) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || status.st_nlink < 2 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  known.push_back(RunNamedIn(path));
  for (const std::string& one : known) {
    std::error_code ignored;
    fs::path dir = fs::weakly_canonical(one, ignored);
    while (!one.empty() && dir != dir.root_path() && !HoldsRun(dir)) dir = dir.parent_path();
    if (!one.empty() && dir != dir.root_path() && HasFile(dir, status)) return dir;
  }
  return std::nullopt;
}

}  // namespace

bool HoldsRun(const std::string& dir) {
  return IsRunDir(dir) || !RunIdIn(dir).empty() || !ListCheckpoints(dir).empty();
}

bool IsFileOfRunIn(const std::string& dir, const std::string& path) {
  std::error_code ignored;
  const fs::path relative = fs::weakly_canonical(fs::absolute(path), ignored)
                                .lexically_relative(fs::weakly_canonical(dir, ignored));
  return !relative.empty() && IsWrittenByRuns(relative);
}

std::optional<std::string> RunOfFile(const std::string& path,
                                     const std::vector<std::string>& known) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(path, ignored);
  // What a link points to, and the link itself.
  const fs::path names[] = {fs::weakly_canonical(whole, ignored),
                            fs::weakly_canonical(whole.parent_path(), ignored) / whole.filename()};
  for (const fs::path& name : names) {
    if (auto run = RunAround(name)) return run;
  }
  return RunWithOtherName(path, known);
}

}  // namespace muster
