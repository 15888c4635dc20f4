#include "cli/process/log_tail.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr std::streamoff kTailBytes = 64 * 1024;
constexpr size_t kMostLogLineBytes = 1000;

}  // namespace

std::vector<std::string> LastLines(const std::string& path, size_t count, int64_t begin) {
  std::stringstream tail;
  bool partial = false;  // the first line may be incomplete
  try {
    std::ifstream file = ReadPlainFile(path);
    if (!file) return {};
    file.seekg(0, std::ios::end);
    const std::streamoff tail_begin = std::streamoff{file.tellg()} - kTailBytes;
    partial = tail_begin > begin;
    file.seekg(std::max<std::streamoff>(begin, tail_begin));
    tail << file.rdbuf();
  } catch (const Error& error) {
    return {error.what()};
  }
  std::vector<std::string> lines;
  std::string line, rest;
  while (std::getline(tail, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    line.erase(0, line.rfind('\r') + 1);  // the last state of a progress bar
    if (std::exchange(partial, false)) {
      rest = line;
    } else if (!line.empty()) {
      lines.push_back(OneLine(line, kMostLogLineBytes));
    }
  }
  if (lines.empty() && !rest.empty()) {
    lines.push_back(OneLine(rest.substr(rest.size() - std::min(rest.size(), kMostLogLineBytes)),
                            kMostLogLineBytes));
  }
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<long>(count));
  return lines;
}

std::string LastError(const std::string& path, int64_t begin, int except) {
  std::vector<std::string> lines = LastLines(path, 100, begin);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const std::vector<std::string> error =
        FirstMatch("(^|[^A-Za-z0-9_])error: (exit code [0-9]+: )?(.*)", *line);
    if (!error.empty() && error[2] != fmt::format("exit code {}: ", except)) return error[3];
  }
  return "";
}

}  // namespace muster
