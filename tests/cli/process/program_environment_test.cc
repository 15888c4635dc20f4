#include "cli/process/program_environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

class PythonClientTest : public ::testing::Test {
 protected:
  PythonClientTest() {
    for (const char* folder : {"bin", "python/muster"}) {
      std::filesystem::create_directories(root_ / folder);
    }
    for (const auto& path : {root_ / "bin/muster-worker", client_}) std::ofstream file(path);
  }
  // PYTHONPATH afterwards.
  std::string Offered() const {
    ::setenv("PYTHONPATH", "/before", 1);
    OfferPythonClient((root_ / "bin/muster-worker").string());
    return ::getenv("PYTHONPATH");
  }

  const TempDir dir_;
  const std::filesystem::path root_ = std::filesystem::canonical(dir_.path());
  const std::filesystem::path client_ = root_ / "python/muster/torch.py";
};

TEST_F(PythonClientTest, TheFolderBesideThePrograms) {
  EXPECT_EQ(Offered(), "/before:" + (root_ / "python").string());
}

TEST_F(PythonClientTest, NothingThatOthersCanChange) {
  std::filesystem::permissions(root_ / "python/muster", std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  EXPECT_EQ(Offered(), "/before");
}

TEST_F(PythonClientTest, NoLink) {
  std::filesystem::rename(client_, root_ / "other.py");
  std::filesystem::create_symlink(root_ / "other.py", client_);
  EXPECT_EQ(Offered(), "/before");
}

}  // namespace
}  // namespace muster::testing
