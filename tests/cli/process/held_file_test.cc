#include "cli/process/held_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryFolderTest, RemovesWhatKilledProcessesHaveLeft) {
  const TempDir temp;
  const char* const before = std::getenv("TMPDIR");
  const std::optional<std::string> tmpdir =
      before ? std::optional<std::string>(before) : std::nullopt;
  ::setenv("TMPDIR", temp.string().c_str(), 1);
  const auto age = [](const fs::path& folder) {
    fs::last_write_time(folder, fs::file_time_type::clock::now() - std::chrono::minutes(5));
  };
  const fs::path left = temp.string() + "/muster-temporary-abcdef";
  const fs::path young = temp.string() + "/muster-temporary-ghijkl";
  const fs::path other = temp.string() + "/muster-something";
  for (const fs::path& path : {left, young, other}) fs::create_directories(path / "run");
  age(left);
  age(other);
  {
    const TemporaryFolder first;
    EXPECT_FALSE(fs::exists(left));
    age(first.path());
    const TemporaryFolder second;
    for (const fs::path& path : {fs::path(first.path()), fs::path(second.path()), young, other}) {
      EXPECT_TRUE(fs::exists(path)) << path;
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(temp.string()), {}), 2);
  tmpdir ? ::setenv("TMPDIR", tmpdir->c_str(), 1) : ::unsetenv("TMPDIR");
}

}  // namespace
}  // namespace muster::testing
