#include "cli/process/program_environment.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace muster {

std::vector<std::string> ProgramEnvironment(const ProgramPlace& place) {
  const size_t slash = place.worker_program.rfind('/');
  // TensorFlow would note what it was compiled for, in every process.
  const char* level = ::getenv("TF_CPP_MIN_LOG_LEVEL");
  const char* hashes = ::getenv("PYTHONHASHSEED");
  return {fmt::format("TF_CPP_MIN_LOG_LEVEL={}", level == nullptr ? "1" : level),
          // The order of a set of texts is the same in all processes of a Python program.
          fmt::format("PYTHONHASHSEED={}", hashes == nullptr ? "0" : hashes),
          "MUSTER_ENDPOINT=" + place.endpoint, "MUSTER_CONFIG=" + place.config,
          "MUSTER_TOKEN=" + place.token, "MUSTER_PROGRAMS=" + place.worker_program.substr(0, slash),
          fmt::format("MUSTER_RANK={}", place.rank), fmt::format("MUSTER_SEED={}", place.seed),
          fmt::format("MUSTER_SLICES={}", place.slices),
          "PYTHONUNBUFFERED=1",  // prints appear when they happen
          fmt::format("OMP_NUM_THREADS={}", place.threads)};
}

void OfferPythonClient(const std::string& worker_program) {
  struct stat programs;
  if (::stat(worker_program.c_str(), &programs) != 0) return;
  const auto is_ours = [&](const std::filesystem::path& path) {  // not somebody else's code
    struct stat one;
    if (::lstat(path.c_str(), &one) != 0 || S_ISLNK(one.st_mode)) return false;
    const bool trusted =
        one.st_uid == programs.st_uid || one.st_uid == ::geteuid() || one.st_uid == 0;
    return trusted && (one.st_mode & S_IWOTH) == 0;
  };
  for (const char* place : {"../python", "../../../python"}) {  // of an archive, of a source tree
    std::error_code failed;
    const std::filesystem::path folder = std::filesystem::weakly_canonical(
        std::filesystem::path(worker_program).parent_path() / place, failed);
    if (failed || !is_ours(folder) || !is_ours(folder / "muster") ||
        !is_ours(folder / "muster/torch.py")) {
      continue;
    }
    const char* before = ::getenv("PYTHONPATH");
    const std::string head = before == nullptr || *before == '\0' ? "" : std::string(before) + ":";
    ::setenv("PYTHONPATH", (head + folder.string()).c_str(), 1);
    return;
  }
}

}  // namespace muster
