// If CUDA is requested but cannot be loaded, a worker ends with code 1 and one line that names the
// missing part and the remedy. With soft placement it continues, and the line is a warning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/config/resolved.h"
#include "proto/config.pb.h"
#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class LoadPluginTest : public RealJob {
 protected:
  LoadPluginTest() {
    fs::create_directories(Path("bin"));
    fs::create_directories(Path("lib"));
    fs::copy_file(BinPath("muster-worker"), Worker());
  }

  fs::path Worker() const { return Path("bin") / "muster-worker"; }
  fs::path Plugin() const { return Path("lib") / "libmuster_cuda.so"; }
  void Install(const std::string& kind) {
    fs::copy_file(BuildPath("tests/cuda/loading/plugins/" + kind + "/libmuster_cuda.so"), Plugin());
  }
  // Runs a worker that creates its device and reports its memory.
  int Run(bool soft, const std::string& library_path = "") {
    const std::string own = std::getenv("LD_LIBRARY_PATH") ? std::getenv("LD_LIBRARY_PATH") : "";
    config::Config config = LoadConfig(Path("tiny.txtpb"), {});
    config.mutable_worker()->set_backend(config::Worker::CUDA);
    config.mutable_worker()->set_soft_placement(soft);
    ResolveForMachine(config, 1);
    WriteRunConfig({}, config, Path("resolved.txtpb"));
    Process worker({fs::relative(Worker(), BinDir()), "memory", "--rank", "0", "--config",
                    Path("resolved.txtpb")},
                   Path("log"), {.environment = {{"LD_LIBRARY_PATH", library_path + ":" + own}}});
    const int code = worker.Wait(60);
    log_ = worker.Log();
    return code;
  }
  // Returns the only line that the worker logs.
  std::string Refusal(const std::string& library_path = "") {
    EXPECT_EQ(Run(false, library_path), 1) << log_;
    EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1) << log_;
    EXPECT_THAT(log_, HasSubstr("worker.backend=CPU"));  // the remedy that always works
    return log_;
  }

  std::string log_;
};

TEST_F(LoadPluginTest, WithoutAPlugin) {
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("this build of Muster has no CUDA backend"),
                               HasSubstr("libmuster_cuda.so"), HasSubstr(Path("bin").string())));
}

TEST_F(LoadPluginTest, WithSoftPlacementTheLineIsAWarning) {
  EXPECT_EQ(Run(true), 0) << log_;
  EXPECT_THAT(log_, AllOf(HasSubstr("falling back to the CPU (worker.soft_placement): "),
                          HasSubstr("has no CUDA backend"), HasSubstr("\"what\":")));
}

TEST_F(LoadPluginTest, WithoutALibraryThatItNeeds) {
  Install("needs_library");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("needs libmuster_stand_in.so.13, which was not found"),
                               HasSubstr("LD_LIBRARY_PATH")));
}

TEST_F(LoadPluginTest, WithALibraryThatIsTooOld) {
  Install("needs_library");
  EXPECT_THAT(Refusal(BuildPath("tests/cuda/loading/old")),
              AllOf(HasSubstr("muster_stand_in_matmul"), HasSubstr("too old"),
                    HasSubstr("LD_LIBRARY_PATH")));
}

// The library it links to exists, so it loads and is recognized as another build.
TEST_F(LoadPluginTest, OfAnotherBuild) {
  Install("needs_library");
  EXPECT_THAT(Refusal(BuildPath("tests/cuda/loading/new")), HasSubstr("from another build"));
  fs::remove(Plugin());
  Install("of_another_build");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("from another build"), HasSubstr("got 0123456789abcdef")));
  fs::rename(Plugin(), Path("lib") / "libmuster_cuda12.so");  // the name in a wheel
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("libmuster_cuda12.so"), HasSubstr("0123456789abcdef")));
}

TEST_F(LoadPluginTest, OfSomebodyElse) {
  Install("foreign");
  EXPECT_THAT(Refusal(), HasSubstr("is not a CUDA backend of this build"));
}

TEST_F(LoadPluginTest, OfACopyThatStoppedHalfway) {
  std::ofstream(Plugin()) << "\x7f"
                             "ELF";
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("cannot load the CUDA backend"), HasSubstr(Plugin().string())));
}

// The real plugin with the real libraries, on a machine without a GPU.
TEST_F(LoadPluginTest, WithoutADriver) {
  if (!MUSTER_HAS_PLUGIN) GTEST_SKIP() << "built without nvcc";
  fs::create_symlink(BuildPath("lib/libmuster_cuda.so"), Plugin());
  if (Run(false) == 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(Refusal(),
              AnyOf(HasSubstr("no NVIDIA driver"), HasSubstr("CUDA finds no usable GPU")));
}

// The plugin is copied to machines where fmt and spdlog are missing or have another version.
TEST_F(LoadPluginTest, NeedsNoLibraryOfOurOwn) {
  if (!MUSTER_HAS_PLUGIN) GTEST_SKIP() << "built without nvcc";
  std::ifstream file(BuildPath("lib/libmuster_cuda.so"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(bytes, HasSubstr("libcublas.so."));
  for (const char* library : {"libfmt.so", "libspdlog.so", "libprotobuf.so", "libzmq.so"}) {
    EXPECT_EQ(bytes.find(library), std::string::npos) << library;
  }
}

}  // namespace
}  // namespace muster::testing
