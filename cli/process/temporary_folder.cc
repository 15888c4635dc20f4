#include "cli/process/temporary_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const fs::path below = fs::temp_directory_path(error);
  path_ = fs::absolute(error ? fs::path("/tmp") : below) / "muster-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Error(ExitCode::kFailure, "cannot make a folder below {}: {}; $TMPDIR chooses another",
                fs::path(path_).parent_path().string(), ErrorText(errno));
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace muster
