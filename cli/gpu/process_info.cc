#include "cli/gpu/process_info.h"

#include <fmt/core.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "common/base/text.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostCommand = 80;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The boot time of the machine, or 0.
std::time_t BootTime() {
  std::istringstream lines(ReadAll("/proc/stat"));
  for (std::string word; lines >> word;) {
    if (word != "btime") continue;
    long long time = 0;
    lines >> time;
    return static_cast<std::time_t>(time);
  }
  return 0;
}

std::optional<std::time_t> StartOf(pid_t pid) {
  const std::string stat = ReadAll(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');  // the name may contain anything
  const std::time_t boot = BootTime();
  if (name_end == std::string::npos || boot == 0) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int i = 3; i < 22; ++i) fields >> field;  // the 22nd is the start, in ticks
  long long ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  return boot + static_cast<std::time_t>(ticks / ::sysconf(_SC_CLK_TCK));
}

}  // namespace

std::string UserName(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer;
  if (::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return OneLine(found->pw_name, 32);
  }
  return fmt::format("user {}", user);
}

ProcessText DescribeProcess(pid_t pid) {
  ProcessText text{.pid = pid};
  const std::string folder = fmt::format("/proc/{}", pid);
  struct stat status {};
  if (pid <= 0 || ::stat(folder.c_str(), &status) != 0) return text;
  text.seen = true;
  text.user = UserName(status.st_uid);
  std::istringstream words(ReadAll(folder + "/cmdline"));
  std::string command;
  for (std::string word; command.size() <= kMostCommand && std::getline(words, word, '\0');) {
    // The name of the program suffices; its path may be long.
    command += command.empty() ? fs::path(word).filename().string() : " " + word;
  }
  if (command.empty()) command = ReadAll(folder + "/comm");
  while (!command.empty() && command.back() == '\n') command.pop_back();
  text.command = OneLine(command, kMostCommand);
  text.since = StartOf(pid);
  return text;
}

std::string ClockText(std::time_t time) {
  std::tm then{}, now{};
  const std::time_t present = std::time(nullptr);
  ::localtime_r(&time, &then);
  ::localtime_r(&present, &now);
  const bool today = then.tm_year == now.tm_year && then.tm_yday == now.tm_yday;
  std::array<char, 64> text{};
  (void)std::strftime(text.data(), text.size(), today ? "%H:%M" : "%d %b %H:%M", &then);
  return text.data();
}

}  // namespace muster
