#include "cli/commands/programs.h"

namespace muster {

namespace fs = std::filesystem;

fs::path ProgramFolder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

std::string Sibling(const std::string& name) { return ProgramFolder() / name; }

std::string FindConfig(const std::string& name, const fs::path& program_folder) {
  std::error_code ignored;
  if (name.empty() || fs::path(name).is_absolute() || fs::exists(name, ignored)) return name;
  const fs::path prefix = program_folder.parent_path();
  for (const fs::path& folder : {prefix, prefix / "share/muster"}) {
    if (fs::is_regular_file(folder / name, ignored)) return (folder / name).string();
  }
  return name;
}

}  // namespace muster
