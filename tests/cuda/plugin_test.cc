// The software GPU in a library that is loaded at run time, as a worker loads its backend. Several
// processes do so at once, each with its own device.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace muster::software_gpu {
namespace {

// Loads the library and sums the numbers with it. Returns -1 if it cannot be loaded.
int SumInPlugin(const std::vector<int>& numbers) {
  void* const library = dlopen(MUSTER_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return -1;
  const auto sum = reinterpret_cast<int (*)(const int*, int)>(dlsym(library, "SumOnDevice"));
  return sum == nullptr ? -1 : sum(numbers.data(), static_cast<int>(numbers.size()));
}

TEST(PluginTest, ComputesInALibrary) {
  EXPECT_EQ(SumInPlugin(std::vector<int>(100, 1)), 100) << dlerror();
}

// As with CUDA, a process must not fork after using its device, so each one is a new program.
TEST(PluginTest, EachProcessHasADeviceOfItsOwn) {
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      execl("/proc/self/exe", "plugin_test", "--gtest_filter=PluginTest.ComputesInALibrary",
            static_cast<char*>(nullptr));
      _exit(1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace muster::software_gpu
