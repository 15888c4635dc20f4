#include "tests/cli/gpu/gpu_job_fixture.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/gpu/lock_folder.h"
#include "cli/gpu/ticket.h"
#include "tests/base/paths.h"

namespace muster::testing {
namespace fs = std::filesystem;

GpuJobTest::GpuJobTest() {
  static std::atomic<int> count = 0;
  own_ = fmt::format("{:08x}{:04x}", ::getpid(), count++);
  SetVariable("FAKE_CARDS", Path("cards"));
  std::ofstream(Path("libmuster_cuda.so")).flush();  // never loaded
  SetVariable("LD_LIBRARY_PATH", FakeDriverDir());
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}) ::unsetenv(name);
  ClearVariable("CUDA_VISIBLE_DEVICES");
}

GpuJobTest::~GpuJobTest() {
  for (const pid_t pid : Processes()) ::kill(pid, SIGKILL);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(LockFolder::OfHost().path(), ignored)) {
    if (entry.path().filename().string().find(own_) != std::string::npos) {
      fs::remove(entry.path(), ignored);
    }
  }
}

std::string GpuJobTest::Uuid(int card) const {
  return fmt::format("GPU-{:04x}0000-0000-0000-0000-{}", card, own_);
}

void GpuJobTest::Cards(const std::vector<std::string>& keys_of_each) {
  std::ofstream file(Path("cards.new"));
  int card = 0;
  for (const std::string& keys : keys_of_each)
    file << "uuid=" << Uuid(card++) << " " << keys << "\n";
  file.close();
  fs::rename(Path("cards.new"), Path("cards"));
}

std::string GpuJobTest::VariableOf(pid_t pid, const std::string& name) {
  const std::string all = ReadFile(fmt::format("/proc/{}/environ", pid));
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\0', at), all.size());
    const std::string variable = all.substr(at, end - at);
    if (variable.starts_with(name + "=")) return variable.substr(name.size() + 1);
    at = end + 1;
  }
  return "";
}

pid_t GpuJobTest::WorkerPid(int rank) const {
  for (const pid_t pid : Processes()) {
    const std::string words = ReadFile(fmt::format("/proc/{}/cmdline", pid));
    const std::string wanted = std::string("--rank") + '\0' + std::to_string(rank) + '\0';
    if (words.find(wanted) != words.npos ||
        words.find(std::string("muster-worker\0evaluate", 22)) != words.npos) {
      return pid;
    }
  }
  return 0;
}

bool GpuJobTest::AreIdle(int count, std::string* said) {
  const Finished finished = Run({"gpus", "run", "-n", std::to_string(count), "--", "true"});
  if (said != nullptr) *said = finished.err;
  return finished.exit_code == 0;
}

}  // namespace muster::testing
