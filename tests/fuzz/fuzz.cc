#include "tests/fuzz/fuzz.h"

#include <google/protobuf/stubs/logging.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "common/base/error.h"

namespace muster::fuzz {

namespace fs = std::filesystem;

void Broken(const std::string& what) {
  std::fprintf(stderr, "check failed: %s\n", what.c_str());
  std::abort();
}

bool OrError(std::string_view names, const std::function<void()>& parse) {
  try {
    parse();
    return true;
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (names.find('\0') != names.npos) return false;  // what() ends there
    if (text.size() <= names.size() || text.find(names) == text.npos) {
      Broken("an error does not name " + std::string(names) + ": \"" + error.what() + "\"");
    }
  } catch (const std::exception& error) {
    Broken(std::string("not a muster::Error: ") + error.what());
  }
  return false;
}

void SilenceLogs() {
  static const bool once = [] {
    spdlog::set_level(spdlog::level::off);
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  (void)once;
}

Folder::Folder() {
  std::string name = (fs::temp_directory_path() / "muster-fuzz-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) Broken("cannot create the folder " + name);
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string Folder::Write(const std::string& name, std::string_view bytes) const {
  const fs::path path = fs::path(path_) / name;
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) Broken("cannot write " + path.string());
  return path.string();
}

void Folder::Clear() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) fs::remove_all(entry);
}

}  // namespace muster::fuzz
