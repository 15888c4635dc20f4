// metrics.jsonl of a run that goes on, and of one whose disk is full.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/resource_limits.h"
#include "ps/reporter.h"

namespace muster {

void Reporter::CutMetrics(const DueLines& due) {
  if (!resumed_ || metrics_fd_ < 0) return;
  struct stat status {};
  if (::fstat(metrics_fd_, &status) != 0) status.st_size = 0;
  unwritten_ = resumed_->unwritten();
  metrics_bytes_ = resumed_->bytes();
  const bool as_it_was = resumed_->has_xxh3() && status.st_size >= metrics_bytes_ &&
                         HashOfStart(metrics_path_, metrics_bytes_).value() == resumed_->xxh3();
  if (!as_it_was) metrics_bytes_ = FindCut(due);
  const MetricsEvents told = ReadMetricsEvents(metrics_path_, metrics_bytes_);
  restarts_ = told.restarts;
  if (status.st_size > metrics_bytes_ && ::ftruncate(metrics_fd_, metrics_bytes_) != 0) {
    throw Error(ExitCode::kFailure, "{}: cannot be cut to {} bytes: {}", metrics_path_,
                metrics_bytes_, ErrorText(errno));
  }
  metrics_hash_ = HashOfStart(metrics_path_, metrics_bytes_);
  for (const std::string& line : told.undone) {
    if (unwritten_.find(line) == std::string::npos) unwritten_ += line;
  }
}

// The file is not the one that the checkpoint knows; or the checkpoint is of a version that kept no
// hash.
int64_t Reporter::FindCut(const DueLines& due) {
  const std::string text = ReadFileIfThere(metrics_path_);
  const std::string_view whole = text;
  const size_t bytes = KeptLinesOf(whole, due).bytes;
  std::istringstream lines(std::exchange(unwritten_, ""));
  for (std::string line; std::getline(lines, line);) {  // there may have been room again
    line += '\n';
    if (whole.substr(0, bytes).find(line) == std::string_view::npos) unwritten_ += line;
  }
  const bool expected = !resumed_->has_xxh3() && static_cast<int64_t>(bytes) == resumed_->bytes();
  if (!expected && bytes < whole.size()) PutAside(whole.substr(bytes));
  std::string lacking = LackingText(due, KeptLinesOf(text.substr(0, bytes) + unwritten_, due));
  if (lacking.empty()) return static_cast<int64_t>(bytes);
  lacking = fmt::format(
      "{}: is not as the run left it: {}; the weights are whole, and the run goes on, but these "
      "lines come back only if it is repeated from its config",
      metrics_path_, lacking);
  LogWarning("{}", lacking);
  Warning(lacking);
  return static_cast<int64_t>(bytes);
}

// Whoever changed the file may want what is in it.
void Reporter::PutAside(std::string_view lines) {
  const std::string path =
      std::filesystem::path(metrics_path_).replace_filename("metrics-cut.jsonl");
  try {
    WriteFileAtomically(path, ReadFileIfThere(path) + std::string(lines));
  } catch (const Error& error) {
    throw Error(ExitCode::kFailure,
                "{}: is not as the run left it, and what is to be cut off cannot be kept: {}",
                metrics_path_, error.what());
  }
  LogWarning("{}: is not as the run left it: what was behind the checkpoint is in {}",
             metrics_path_, path);
}

std::string Reporter::AllLines() const {
  std::string text = ReadFileIfThere(metrics_path_);
  text.resize(std::min(text.size(), static_cast<size_t>(metrics_bytes_)));
  return text + unwritten_;
}

checkpoint::Metrics Reporter::KeepMetrics() const {
  checkpoint::Metrics kept;
  kept.set_bytes(metrics_bytes_);
  kept.set_unwritten(unwritten_);
  kept.set_xxh3(metrics_hash_.value());
  return kept;
}

}  // namespace muster
