#include "tests/e2e/namespaces.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace muster::testing {

namespace fs = std::filesystem;

std::string Namespaces::WhyNot(const std::vector<std::string>& programs, const std::string& more) {
  for (const std::string& program : programs) {
    if (ProgramInPath(program).empty()) return "needs " + program + ": scripts/setup.sh --checks";
  }
  const std::string attempt = fmt::format(
      "unshare --mount --net --uts --pid --fork sh -c 'mount -t proc proc /proc && {}' >/dev/null "
      "2>&1",
      more);
  return std::system(attempt.c_str()) == 0 ? "" : "needs the right to create namespaces (root)";
}

Namespaces::Namespaces(const std::string& name) {
  std::string pattern = (fs::temp_directory_path() / (name + "-XXXXXX")).string();
  dir_ = ::mkdtemp(pattern.data());
}

Namespaces::~Namespaces() {
  first_.reset();
  std::error_code ignored;
  // The processes inside are dying, and may still write.
  (void)Eventually(5, [&] { return fs::remove_all(dir_, ignored), !fs::exists(dir_, ignored); });
}

bool Namespaces::Start(const std::string& script, const std::vector<std::string>& arguments) {
  std::ofstream(dir_ / "start.sh") << script;
  std::vector<std::string> words{
      ProgramInPath("unshare"), "--mount",   "--net",          "--uts", "--pid", "--fork",
      "--kill-child",           "/bin/bash", dir_ / "start.sh"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  first_ = std::make_unique<Process>(words, dir_ / "daemons.log");
  const std::string pid = std::to_string(first_->pid());
  return Eventually(10, [&] {
    const std::string children = Slurp("/proc/" + pid + "/task/" + pid + "/children");
    if (children.empty()) return false;
    init_ = std::stoi(children);
    return true;
  });
}

std::vector<std::string> Namespaces::Inside(const std::vector<std::string>& words) const {
  std::vector<std::string> all{ProgramInPath("nsenter"),
                               "--target",
                               std::to_string(init_),
                               "--mount",
                               "--net",
                               "--uts",
                               "--pid",
                               "--"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::string Namespaces::Run(const std::vector<std::string>& words) {
  Process process(Inside(words), dir_ / fmt::format("command{}", commands_++));
  (void)process.Wait(20);
  return process.Log();
}

std::vector<pid_t> Namespaces::Find(const std::string& text) const {
  std::vector<pid_t> found;
  std::error_code ignored;
  const fs::path inside = fs::read_symlink(fmt::format("/proc/{}/ns/pid", init_), ignored);
  EXPECT_FALSE(inside.empty()) << "its first process has ended";
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string command = Slurp(entry.path() / "cmdline");
    std::ranges::replace(command, '\0', ' ');
    if (command.find(text) == std::string::npos) continue;
    if (fs::read_symlink(entry.path() / "ns/pid", ignored) == inside) {
      found.push_back(std::stoi(pid));
    }
  }
  return found;
}

}  // namespace muster::testing
